#include "kernels/cuda/training/adamw.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float updated(const AdamWCall& call, float grad, float& m, float& v, float w) {
  const float g = grad * call.grad_scale;
  m = call.beta1 * m + (1.0F - call.beta1) * g;
  v = call.beta2 * v + (1.0F - call.beta2) * g * g;
  return call.decay * w -
         call.step_size * (m / (sqrtf(v) * call.inverse_sqrt_correction2 + call.eps));
}

/// Four numbers a thread and iteration; the last three of a buffer one by one.
template <typename T>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWCall call) {
  grid_dependency_wait();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                step = static_cast<int64_t>(gridDim.x) * kThreads, packs = call.count / 4;
  constexpr bool kHasCopy = sizeof(T) != sizeof(float);
  for (int64_t i = first; i < packs; i += step) {
    const float4 grad = reinterpret_cast<const float4*>(call.grad_N)[i];
    float4 m = reinterpret_cast<float4*>(call.first_moment_N)[i];
    float4 v = reinterpret_cast<float4*>(call.second_moment_N)[i];
    float4 w = reinterpret_cast<float4*>(call.master_N)[i];
    w.x = updated(call, grad.x, m.x, v.x, w.x);
    w.y = updated(call, grad.y, m.y, v.y, w.y);
    w.z = updated(call, grad.z, m.z, v.z, w.z);
    w.w = updated(call, grad.w, m.w, v.w, w.w);
    reinterpret_cast<float4*>(call.first_moment_N)[i] = m;
    reinterpret_cast<float4*>(call.second_moment_N)[i] = v;
    reinterpret_cast<float4*>(call.master_N)[i] = w;
    if constexpr (kHasCopy) {
      static_cast<Pack<T, 4>*>(call.weights_N)[i] = {
          {from_float<T>(w.x), from_float<T>(w.y), from_float<T>(w.z), from_float<T>(w.w)}};
    }
  }
  for (int64_t i = 4 * packs + first; i < call.count; i += step) {
    float m = call.first_moment_N[i], v = call.second_moment_N[i];
    const float w = updated(call, call.grad_N[i], m, v, call.master_N[i]);
    call.first_moment_N[i] = m;
    call.second_moment_N[i] = v;
    call.master_N[i] = w;
    if constexpr (kHasCopy) static_cast<T*>(call.weights_N)[i] = from_float<T>(w);
  }
}

/// Piece b has the packs [b, b + 1) * packs / pieces, so results do not depend on scheduling.
__global__ void __launch_bounds__(kThreads)
    sums_of_squares_kernel(const float* x_N, int64_t count, double* sums) {
  __shared__ double scratch[kThreads];
  grid_dependency_wait();
  const int64_t packs = count / 4, pieces = gridDim.x;
  const int64_t begin = packs * blockIdx.x / pieces, end = packs * (blockIdx.x + 1) / pieces;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float4 x = reinterpret_cast<const float4*>(x_N)[i];
    sum += (static_cast<double>(x.x) * x.x + static_cast<double>(x.y) * x.y) +
           (static_cast<double>(x.z) * x.z + static_cast<double>(x.w) * x.w);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (int64_t i = 4 * packs; i < count; ++i) sum += static_cast<double>(x_N[i]) * x_N[i];
  scratch[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = scratch[0];
}

}  // namespace

void adamw(const AdamWCall& call, Stream stream) {
  constexpr int64_t kMaxBlocks = 132 * 16;
  const int64_t blocks = (call.count / 4 + kThreads - 1) / kThreads;
  with_type(call.number, [&](auto zero) {
    launch(adamw_kernel<decltype(zero)>,
           dim3(blocks < 1            ? 1
                : blocks < kMaxBlocks ? blocks
                                      : kMaxBlocks),
           dim3(kThreads), 0, stream, call);
  });
}

void sums_of_squares(const float* x_N, int64_t count, double* sums, Stream stream) {
  launch(sums_of_squares_kernel, dim3(kSquareSums), dim3(kThreads), 0, stream, x_N, count, sums);
}

}  // namespace slime::kernels::cuda
