#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;

/// A warp per row and head. With s scores and a sink z: the sum of exp(s) becomes that and exp(z).
template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    apply_sinks_kernel(AttendCall call, const float* logsumexp_TN, float unit) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= call.rows * call.num_heads) return;
  const float logsumexp = logsumexp_TN[at] * unit;
  if (logsumexp == INFINITY) return;
  const float sink = to_float(static_cast<const T*>(call.sinks_N)[at % call.num_heads]);
  const float share = 1.0F / (1.0F + expf(sink - logsumexp));
  T* out = static_cast<T*>(call.out_TC) + at * call.head_dim;
  for (int i = threadIdx.x % 32; i < call.head_dim; i += 32)
    out[i] = from_float<T>(to_float(out[i]) * share);
}

}  // namespace

void apply_sinks(const AttendCall& call, const float* logsumexp_TN, bool is_base_2, Stream stream) {
  constexpr float kLn2 = 0.6931471805599453F;
  const dim3 grid((call.rows * call.num_heads + kWarps - 1) / kWarps);
  with_type(call.number, [&](auto zero) {
    launch(apply_sinks_kernel<decltype(zero)>, grid, dim3(32 * kWarps), 0, stream, call,
           logsumexp_TN, is_base_2 ? kLn2 : 1.0F);
  });
}

}  // namespace slime::kernels::cuda
