#include "kernels/cuda/chain_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_pairs.h"
#include "kernels/cuda/products/low_rank_hidden.h"
#include "kernels/cuda/products/narrow_product.h"

namespace slime::kernels::cuda {
namespace {

/// Of the adapter that all rows take, which may have none.
std::vector<PairRange> ranges_of_all_rows(const Matrix& weight_OI) {
  const AdapterRows& rows = *weight_OI.adapters->rows;
  if (rows.shares.empty() || rows.shares.front().slot < 0) return {};
  return pair_ranges(weight_OI, rows.shares.front().slot);
}

bool are_by_row(const Matrix& weight_OI) { return weight_OI.adapters->rows->tiles.defined(); }

bool is_plain_float(const Tensor& factor) {
  return factor.scalar_type() == at::kFloat && factor.is_contiguous();
}

int rounded_up(int rank) { return (rank + 15) / 16 * 16; }

}  // namespace

bool has_addition(const Matrix& weight_OI) {
  if (!adds(weight_OI.adapters)) return false;
  return are_by_row(weight_OI) ? weight_OI.adapters->placed.down.defined()
                               : !ranges_of_all_rows(weight_OI).empty();
}

bool has_chain_addition(const Matrix& weight_OI, int64_t rows) {
  if (!adds(weight_OI.adapters)) return true;
  if (!has_low_rank_hidden(Number::kBFloat16) || weight_OI.inputs() % kLowRankHiddenInputs != 0)
    return false;
  // Each thread block would add one adapter after the other.
  if (are_by_row(weight_OI)) return has_narrow_product(Number::kBFloat16, rows, weight_OI.inputs());
  const AdapterRows& taken = *weight_OI.adapters->rows;
  if (!taken.shares.empty() && !taken.takes_one()) return false;
  const std::vector<PairRange> ranges = ranges_of_all_rows(weight_OI);
  return std::ssize(ranges) <= kMostLowRankFactors &&
         std::ranges::all_of(ranges, [](const PairRange& range) {
           const LowRankPair& pair = *range.pair;
           return pair.experts == 0 && is_plain_float(pair.a.value) && is_aligned(pair.a.value) &&
                  is_plain_float(pair.b.value);
         });
}

/// All of the addition but h.
void ChainAddition::set_rows_and_factors(const Matrix& weight_OI) {
  const MatrixAdapters& adapters = *weight_OI.adapters;
  if (are_by_row(weight_OI)) {
    const AdapterTiles& tiles = adapters.rows->tiles;
    const auto table = [](const Tensor& placed) {
      return static_cast<const LowRankFactors*>(placed.const_data_ptr());
    };
    call_.by_row.slot_N = tiles.slot_N.const_data_ptr<int32_t>();
    call_.by_row.row_N = tiles.row_N.const_data_ptr<int32_t>();
    call_.by_row.tiles = static_cast<int>(tiles.slot_N.numel());
    call_.by_row.table = table(adapters.placed.up);
    call_.down_table = table(adapters.placed.down);
    call_.first_output = static_cast<int>(weight_OI.adapter_row);
    call_.h_pitch = static_cast<int>(adapters.placed.most_ranks);
    return;
  }
  for (const PairRange& range : ranges_of_all_rows(weight_OI)) {
    const FactorsOfPair factors(range, call_.down.ranks);
    call_.down.of[call_.down.count++] = factors.a;
    call_.factors.of[call_.factors.count++] = factors.b;
    call_.down.ranks = call_.factors.ranks = call_.down.ranks + factors.a.rank;
  }
  call_.h_pitch = call_.down.ranks;
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, unsigned* counts) {
  if (!has_addition(weight_OI)) return;
  set_rows_and_factors(weight_OI);
  h_TR_ = at::empty({x_TI.size(0), call_.h_pitch}, x_TI.options().dtype(at::kFloat));
  call_.h_TR = h_TR_.data_ptr<float>();
  call_.made = counts;
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, cudaStream_t stream) {
  if (!has_addition(weight_OI)) return;
  set_rows_and_factors(weight_OI);
  h_TR_ = at::empty({x_TI.size(0), call_.h_pitch}, x_TI.options().dtype(at::kFloat));
  call_.h_TR = h_TR_.data_ptr<float>();
  LowRankHidden hidden;
  hidden.x_TI = pointer(x_TI);
  hidden.rows = static_cast<int>(x_TI.size(0));
  hidden.inputs = static_cast<int>(x_TI.size(1));
  hidden.factors = call_.down;
  hidden.by_row = call_.by_row;
  hidden.by_row.table = call_.down_table;
  hidden.h_pitch = call_.h_pitch;
  hidden.h_TR = call_.h_TR;
  // Chunks of the tables have 32 ranks.
  hidden.most_ranks = 32 * static_cast<int>(weight_OI.adapters->placed.most_chunks);
  if (!are_by_row(weight_OI)) {
    hidden.most_ranks = 0;
    for (int i = 0; i < call_.down.count; ++i)
      hidden.most_ranks += rounded_up(call_.down.of[i].rank);
  }
  low_rank_hidden(hidden, stream);
}

}  // namespace slime::kernels::cuda
