#include "kernels/cuda/chain_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_counts.h"
#include "kernels/cuda/low_rank_pairs.h"
#include "kernels/cuda/products/low_rank_hidden.h"
#include "kernels/cuda/products/narrow_product.h"

namespace slime::kernels::cuda {
namespace {

bool are_by_row(const Matrix& weight_OI) { return weight_OI.adapters->rows->tiles.defined(); }

/// Whether a batch's product makes h of all adapters that its rows take.
bool makes_by_row(const Matrix& weight_OI, int64_t rows, BatchProduct::Epilogue epilogue) {
  if (!has_addition(weight_OI) || !has_batch_product(Number::kBFloat16, rows)) return false;
  BatchProduct product;
  product.rows = static_cast<int>(rows);
  product.inputs = static_cast<int>(weight_OI.inputs());
  product.outputs = static_cast<int>(weight_OI.outputs());
  product.epilogue = epilogue;
  product.addition.by_row = rows_by_adapter(*weight_OI.adapters);
  return makes_low_rank_hidden(product);
}

}  // namespace

bool has_addition(const Matrix& weight_OI) {
  if (!adds(weight_OI.adapters)) return false;
  return are_by_row(weight_OI) ? weight_OI.adapters->placed.down.defined()
                               : !ranges_of(weight_OI).empty();
}

bool has_chain_addition(const Matrix& weight_OI, int64_t rows, BatchProduct::Epilogue epilogue) {
  if (!adds(weight_OI.adapters)) return true;
  if (!has_low_rank_hidden(Number::kBFloat16) || weight_OI.inputs() % kLowRankHiddenInputs != 0)
    return false;
  // Behind a kernel for h each thread block would add one adapter after the other.
  if (are_by_row(weight_OI))
    return has_narrow_product(Number::kBFloat16, rows, weight_OI.inputs()) ||
           makes_by_row(weight_OI, rows, epilogue);
  const AdapterRows& taken = *weight_OI.adapters->rows;
  if (!taken.shares.empty() && !taken.takes_one()) return false;
  const std::vector<PairRange> ranges = ranges_of(weight_OI);
  return std::ssize(ranges) <= kMostLowRankFactors &&
         std::ranges::all_of(ranges, [](const PairRange& range) {
           return has_plain_factors(*range.pair) && is_aligned(range.pair->a.value);
         });
}

/// All of the addition but h.
void ChainAddition::set_rows_and_factors(const Matrix& weight_OI) {
  const MatrixAdapters& adapters = *weight_OI.adapters;
  if (are_by_row(weight_OI)) {
    call_.by_row = rows_by_adapter(adapters);
    call_.by_row.table = factor_table(adapters.placed.up);
    call_.down_table = factor_table(adapters.placed.down);
    call_.first_output = static_cast<int>(weight_OI.adapter_row);
    call_.h_pitch = static_cast<int>(adapters.placed.most_ranks);
    return;
  }
  for (const PairRange& range : ranges_of(weight_OI)) {
    const FactorsOfPair factors(range, call_.down.ranks);
    call_.down.of[call_.down.count++] = factors.a;
    call_.factors.of[call_.factors.count++] = factors.b;
    call_.down.ranks = call_.factors.ranks = call_.down.ranks + factors.a.rank;
  }
  call_.h_pitch = call_.down.ranks;
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI) {
  if (!has_addition(weight_OI)) return;
  set_rows_and_factors(weight_OI);
  h_TR_ = at::empty({x_TI.size(0), call_.h_pitch}, x_TI.options().dtype(at::kFloat));
  call_.h_TR = h_TR_.data_ptr<float>();
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, unsigned* counts,
                             float* polled)
    : ChainAddition(x_TI, weight_OI) {
  check(call_.h_TR == nullptr || counts != nullptr, "kernels that make h count who has");
  call_.made = counts;
  if (call_.h_TR == nullptr || polled == nullptr || h_TR_.numel() > kLowRankPolled) return;
  call_.h_TR = polled;
  call_.is_polled = true;
}

std::optional<ChainAddition> ChainAddition::made_by(const BatchProduct& product, const Tensor& x_TI,
                                                    const Matrix& weight_OI, unsigned* flags) {
  if (flags == nullptr || !has_addition(weight_OI)) return std::nullopt;
  ChainAddition addition;
  addition.set_rows_and_factors(weight_OI);
  BatchProduct call = product;
  call.addition = addition.call_;
  if (!makes_low_rank_hidden(call)) return std::nullopt;
  addition.h_TR_ = at::empty({low_rank_hidden_numbers(call)}, x_TI.options().dtype(at::kFloat));
  addition.call_.h_TR = addition.h_TR_.data_ptr<float>();
  addition.call_.flags = flags;
  return addition;
}

ChainAddition::ChainAddition(const Tensor& x_TI, const Matrix& weight_OI, cudaStream_t stream,
                             unsigned* ready)
    : ChainAddition(x_TI, weight_OI) {
  if (call_.h_TR == nullptr) return;
  if (!are_by_row(weight_OI)) call_.ready = ready;
  LowRankHidden hidden;
  hidden.x_TI = pointer(x_TI);
  hidden.rows = static_cast<int>(x_TI.size(0));
  hidden.inputs = static_cast<int>(x_TI.size(1));
  hidden.factors = call_.down;
  hidden.by_row = call_.by_row;
  hidden.by_row.table = call_.down_table;
  hidden.h_pitch = call_.h_pitch;
  hidden.h_TR = call_.h_TR;
  hidden.ready = call_.ready;
  low_rank_hidden(hidden, stream);
}

}  // namespace slime::kernels::cuda
