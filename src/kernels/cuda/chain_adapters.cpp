#include "kernels/cuda/chain_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_pairs.h"
#include "kernels/cuda/products/low_rank_hidden.h"

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

bool has_chain_addition(const Matrix& weight_OI) {
  if (!adds(weight_OI.adapters)) return true;
  if (!has_low_rank_hidden(Number::kBFloat16) || weight_OI.inputs() % kLowRankHiddenInputs != 0)
    return false;
  if (are_by_row(weight_OI)) return true;
  const AdapterRows& rows = *weight_OI.adapters->rows;
  if (!rows.shares.empty() && !rows.takes_one()) return false;
  const std::vector<PairRange> ranges = ranges_of_all_rows(weight_OI);
  return std::ssize(ranges) <= kMostLowRankFactors &&
         std::ranges::all_of(ranges, [](const PairRange& range) {
           const LowRankPair& pair = *range.pair;
           return pair.experts == 0 && is_plain_float(pair.a.value) && is_aligned(pair.a.value) &&
                  is_plain_float(pair.b.value);
         });
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, const NormPrologue& norm,
                             cudaStream_t stream) {
  if (!has_addition(weight_OI)) return;
  const MatrixAdapters& adapters = *weight_OI.adapters;
  LowRankHidden hidden;
  hidden.x_TI = pointer(x_TI);
  hidden.norm = norm;
  hidden.rows = static_cast<int>(x_TI.size(0));
  hidden.inputs = static_cast<int>(x_TI.size(1));
  if (are_by_row(weight_OI)) {
    const AdapterTiles& tiles = adapters.rows->tiles;
    LowRankRows by_row;
    by_row.slot_N = tiles.slot_N.const_data_ptr<int32_t>();
    by_row.row_N = tiles.row_N.const_data_ptr<int32_t>();
    by_row.tiles = static_cast<int>(tiles.slot_N.numel());
    hidden.by_row = call_.by_row = by_row;
    hidden.by_row.table = static_cast<const LowRankFactors*>(adapters.placed.down.const_data_ptr());
    call_.by_row.table = static_cast<const LowRankFactors*>(adapters.placed.up.const_data_ptr());
    call_.first_output = static_cast<int>(weight_OI.adapter_row);
    hidden.most_ranks = 32 * static_cast<int>(adapters.placed.most_chunks);
    hidden.h_pitch = static_cast<int>(adapters.placed.most_ranks);
  } else {
    for (const PairRange& range : ranges_of_all_rows(weight_OI)) {
      const FactorsOfPair factors(range, hidden.factors.ranks);
      hidden.factors.of[hidden.factors.count++] = factors.a;
      call_.factors.of[call_.factors.count++] = factors.b;
      hidden.factors.ranks = call_.factors.ranks = hidden.factors.ranks + factors.a.rank;
      hidden.most_ranks += rounded_up(factors.a.rank);
    }
    hidden.h_pitch = hidden.factors.ranks;
  }
  h_TR_ = at::empty({hidden.rows, hidden.h_pitch}, x_TI.options().dtype(at::kFloat));
  hidden.h_TR = h_TR_.data_ptr<float>();
  low_rank_hidden(hidden, stream);
  call_.h_TR = hidden.h_TR;
  call_.h_pitch = hidden.h_pitch;
}

}  // namespace slime::kernels::cuda
