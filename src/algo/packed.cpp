#include "algo/packed.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace slime::algo {

Tensor make_starts(std::span<const int64_t> lengths) {
  Tensor starts = at::zeros({static_cast<int64_t>(lengths.size()) + 1}, at::kLong);
  auto* out = starts.mutable_data_ptr<int64_t>();
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    check(lengths[r] >= 0, "a response has no negative length");
    out[r + 1] = out[r] + lengths[r];
  }
  return starts;
}

Tensor response_of_token(const Tensor& starts) {
  const int64_t num_responses = starts.size(0) - 1;
  const Tensor lengths = starts.slice(0, 1) - starts.slice(0, 0, num_responses);
  return at::repeat_interleave(at::arange(num_responses, at::kLong), lengths);
}

Tensor expand_to_tokens(const Tensor& x_R, const Tensor& starts) {
  const Tensor owner_T = response_of_token(starts).to(x_R.device());
  // On a GPU the gradient of index_select is added as threads arrive; that of index is sorted.
  return x_R.is_cuda() ? x_R.index({owner_T}) : x_R.index_select(0, owner_T);
}

Tensor sum_per_response(const Tensor& x_T, const Tensor& starts) {
  const Tensor zeros = at::zeros({starts.size(0) - 1}, x_T.options());
  const Tensor owner_T = response_of_token(starts).to(x_T.device());
  // As above.
  return x_T.is_cuda() ? zeros.index_put({owner_T}, x_T, /*accumulate=*/true)
                       : zeros.index_add(0, owner_T, x_T);
}

Tensor mean_per_response(const Tensor& x_T, const Tensor& trained_T, const Tensor& starts) {
  const Tensor mask_T = trained_T.to(x_T.dtype());
  const Tensor total_R = sum_per_response(mask_T, starts).clamp_min(1);
  return sum_per_response(x_T * mask_T, starts) / total_R;
}

}  // namespace slime::algo
