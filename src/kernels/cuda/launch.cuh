#pragma once

/// Launching kernels and the small device functions they share.
///
/// Kernels are launched with programmatic dependent launch (PDL): a kernel may start while the one
/// before it still runs, does what needs none of its results (prefetching weights), then calls
/// grid_dependency_wait(). Every kernel calls it before it reads or writes what another kernel
/// touches, and launch_dependents() as early as it likes.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace slime::kernels::cuda {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

/// Of the device that was current at the first call: a process uses one.
inline int num_processors() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return count;
}
inline int compute_capability_major() {
  static const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  return major;
}

/// Lets thread blocks of the kernel have so much dynamic shared memory.
template <auto kKernel>
void allow_shared_memory(int bytes) {
  [[maybe_unused]] static const bool is_allowed = [&] {
    check_cuda(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "shared memory of a kernel");
    return true;
  }();
}

/// Shared-memory carve-out: percent of a multiprocessor's L1 cache that serves as shared memory
/// while the kernel runs. It changes only when the multiprocessor is idle, which costs a small
/// kernel a microsecond.
enum SharedShare : unsigned { kDriverChooses = ~0U };

template <typename... Parameters, typename... Arguments>
void launch(SharedShare share, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = share;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = share == kDriverChooses ? 1 : 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             "kernel launch");
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, Arguments... arguments) {
  launch(kDriverChooses, kernel, grid, block, shared_bytes, stream, arguments...);
}

#ifdef __CUDACC__

/// Waits until the preceding kernels have completed and their writes are visible.
__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start as soon as every thread block has called this or ended.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

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
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kMinusLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0F + power));
  return x * inverse;
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
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
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

/// Calls `body` with a value of the type.
template <typename Body>
void with_type(Number number, const Body& body) {
  switch (number) {
    case Number::kFloat32:
      return body(float{});
    case Number::kBFloat16:
      return body(__nv_bfloat16{});
    case Number::kFloat16:
      return body(__half{});
  }
}

}  // namespace slime::kernels::cuda
