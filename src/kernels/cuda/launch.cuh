#pragma once

/// Launching kernels and the small device functions they share.
///
/// Kernels are launched with programmatic dependent launch (PDL): a kernel may start while the one
/// before it still runs, does what needs none of its results (prefetching weights), then calls
/// grid_dependency_wait(). Every kernel calls it before it reads or writes what another kernel
/// touches, and launch_dependents() as early as it likes.

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda {

#if SLIME_DEVICE_CODE

/// Numbers that are loaded and stored together: 16 bytes, if nothing else is said.
template <typename T, int kNumbers = 16 / sizeof(T)>
struct alignas(kNumbers * sizeof(T)) Pack {
  static constexpr int kSize = kNumbers;
  T x[kSize];
};

template <typename T>
__device__ inline float to_float(T x) {
  return static_cast<float>(x);
}
template <typename T>
__device__ inline T from_float(float x) {
  return static_cast<T>(x);
}

/// One function for engine and training, in five instructions: nothing is done for numbers below 1e-38.
__device__ inline float silu(float x) {
  constexpr float kMinusLog2E = -1.44269504F;
  return x * reciprocal_flushed(1.0F + exp2_flushed(x * kMinusLog2E));
}

/// The number of this precision next to x.
template <typename T>
__device__ inline float rounded(float x) {
  return to_float(from_float<T>(x));
}

/// silu(gate) * up of sums that are rounded first, as training has them, where a product's results are
/// stored before the activation reads them.
template <typename T>
__device__ inline float gated(float gate, float up) {
  return silu(rounded<T>(gate)) * rounded<T>(up);
}

__device__ inline float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += shuffle_xor(x, offset);
  return x;
}

/// The sum over the thread block, in every thread. `scratch`: 33 floats of shared memory.
__device__ inline float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  if (warp == 0) {
    const int num_warps = (blockDim.x + 31) / 32;
    float total = warp_sum(lane < num_warps ? scratch[lane] : 0.0F);
    if (lane == 0) scratch[32] = total;
  }
  __syncthreads();
  return scratch[32];
}

#endif

/// Precisions that kernels are compiled for.
enum class Number { kFloat32, kBFloat16, kFloat16 };

#if SLIME_DEVICE_CODE

/// Calls `body` with a value of the type.
template <typename Body>
void with_type(Number number, const Body& body) {
  switch (number) {
    case Number::kFloat32:
      return body(float{});
    case Number::kBFloat16:
      return body(BFloat16{});
    case Number::kFloat16:
      return body(Float16{});
  }
}

#endif

}  // namespace slime::kernels::cuda
