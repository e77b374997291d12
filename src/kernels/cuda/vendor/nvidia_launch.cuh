#pragma once

/// The host side of kernels on NVIDIA's GPUs: launches and what the device has.
///
/// Kernels are launched with programmatic dependent launch (PDL): kernels/cuda/launch.cuh.

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace slime::kernels::cuda {

using Stream = cudaStream_t;

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

/// Whether there is machine code for the current device.
template <typename... Parameters>
bool has_code(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  const bool has = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  cudaGetLastError();  // a missing image is an answer, not an error that stays
  return has;
}

inline int shared_bytes_of_processor() {
  static const int all = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return all;
}

/// Whether kernels under SLIME_HAS_DECODE are there (vendor.cuh).
inline bool has_decode_kernels() { return compute_capability_major() == 9; }

/// There are FlashInfer's tiles.
inline bool attends_in_tiles() { return false; }

}  // namespace slime::kernels::cuda
