#include "core/divide_up.h"
#include "kernels/cuda/delta/delta_gates.h"
#include "kernels/gpu/delta_limits.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float softplus(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

template <typename T, typename W>
__global__ void __launch_bounds__(kThreads) delta_rates_kernel(DeltaRateCall call) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= call.rows * call.heads) return;
  const int64_t row = at / call.heads, head = at % call.heads;
  const float a = to_float(static_cast<const T*>(call.a_TN)[row * call.row_stride + head]);
  const float b = to_float(static_cast<const T*>(call.b_TN)[row * call.row_stride + head]);
  const float a_log = to_float(static_cast<const W*>(call.a_log_N)[head]);
  const float bias = to_float(static_cast<const W*>(call.bias_N)[head]);
  call.decay_TN[at] = -expf(a_log) * softplus(a + bias);
  call.rate_TN[at] = 1.0F / (1.0F + expf(-b));
}

/// A warp per row and head.
template <typename T, typename W>
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(GatedNormCall call) {
  constexpr int kPerLane = kMostDeltaValues / 32;
  launch_dependents();
  grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % 32, size = call.value_dim;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= call.rows * call.heads) return;
  const int64_t row = at / call.heads, head = at % call.heads;
  const float* from = call.x_TC + at * size;
  float x[kPerLane] = {};
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPerLane; ++p) {
    const int i = lane + 32 * p;
    if (i < size) x[p] = from[i];
    squares += x[p] * x[p];
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(size) + call.eps);
  const T* z = static_cast<const T*>(call.z_TC) + row * call.row_stride + head * size;
  T* out = static_cast<T*>(call.out_TC) + at * size;
#pragma unroll
  for (int p = 0; p < kPerLane; ++p) {
    const int i = lane + 32 * p;
    if (i >= size) continue;
    const float gate = to_float(z[i]);
    out[i] = from_float<T>(x[p] * scale * to_float(static_cast<const W*>(call.weight_V)[i]) *
                           (gate / (1.0F + expf(-gate))));
  }
}

}  // namespace

void delta_rates(const DeltaRateCall& call, Stream stream) {
  const dim3 grid(divide_up(call.rows * call.heads, int64_t{kThreads}));
  with_type(call.number, [&](auto zero) {
    with_type(call.of_weights, [&](auto weight) {
      launch(delta_rates_kernel<decltype(zero), decltype(weight)>, grid, dim3(kThreads), 0, stream,
             call);
    });
  });
}

void gated_norm(const GatedNormCall& call, Stream stream) {
  if (call.value_dim > kMostDeltaValues)
    throw std::runtime_error("gated norms have heads of up to 256");
  const dim3 grid(divide_up(call.rows * call.heads, int64_t{kWarps}));
  with_type(call.number, [&](auto zero) {
    with_type(call.of_weight, [&](auto weight) {
      launch(gated_norm_kernel<decltype(zero), decltype(weight)>, grid, dim3(kThreads), 0, stream,
             call);
    });
  });
}

}  // namespace slime::kernels::cuda
