#include <cuda_bf16.h>

#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {

/// Instantiated in attend_exact_*.cu, one each.
template <typename T, int kHeadDim>
void attend_exact_of(const AttendCall& call, const ExactArrays& plan, float* logsumexp_TN,
                     cudaStream_t stream);

bool has_exact(Number number, int head_dim) {
  return number == Number::kBFloat16 && (head_dim == 64 || head_dim == 128 || head_dim == 256);
}

void attend_exact(const AttendCall& call, const ExactArrays& plan, float* logsumexp_TN,
                  cudaStream_t stream) {
  if (!has_exact(call.number, call.head_dim) || call.paged.is_fp8 || call.window > 0)
    throw std::runtime_error(
        "attention in training arithmetic is in bfloat16, with head sizes 64, 128 and 256 and "
        "without windows");
  switch (call.head_dim) {
    case 64:
      return attend_exact_of<__nv_bfloat16, 64>(call, plan, logsumexp_TN, stream);
    case 128:
      return attend_exact_of<__nv_bfloat16, 128>(call, plan, logsumexp_TN, stream);
    default:
      return attend_exact_of<__nv_bfloat16, 256>(call, plan, logsumexp_TN, stream);
  }
}

}  // namespace slime::kernels::cuda
