#pragma once

/// The host side of kernels on AMD's GPUs: launches and what the device has.

#include <hip/hip_runtime.h>

#include <stdexcept>
#include <string>

namespace slime::kernels::cuda {

using Stream = hipStream_t;

inline void check_hip(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(status));
}

inline int device_attribute(hipDeviceAttribute_t attribute) {
  int device = 0, value = 0;
  check_hip(hipGetDevice(&device), "hipGetDevice");
  check_hip(hipDeviceGetAttribute(&value, attribute, device), "hipDeviceGetAttribute");
  return value;
}

/// None of NVIDIA's: what asks for one takes the way without such kernels.
inline int compute_capability_major() { return 0; }

/// Of the device that was current at the first call: a process uses one.
inline int num_processors() {
  static const int count = device_attribute(hipDeviceAttributeMultiprocessorCount);
  return count;
}
inline int shared_bytes_of_processor() {
  static const int all = device_attribute(hipDeviceAttributeMaxSharedMemoryPerMultiprocessor);
  return all;
}
inline bool has_decode_kernels() { return true; }
inline bool attends_in_tiles() { return true; }

/// 64 KiB on gfx942 and 160 KiB on gfx950: a launch that asks for more fails.
template <auto kKernel>
void allow_shared_memory(int bytes) {
  [[maybe_unused]] static const bool is_allowed = [&] {
    check_hip(hipFuncSetAttribute(reinterpret_cast<const void*>(kKernel),
                                  hipFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "shared memory of a kernel");
    return true;
  }();
}

/// There is no carve-out.
enum SharedShare : unsigned { kDriverChooses = ~0U };

#ifdef __HIP__
template <typename... Parameters, typename... Arguments>
void launch(SharedShare, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Stream stream, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  check_hip(hipGetLastError(), "kernel launch");
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Stream stream, Arguments... arguments) {
  launch(kDriverChooses, kernel, grid, block, shared_bytes, stream, arguments...);
}
#endif

/// Whether there is machine code for the current device.
template <typename... Parameters>
bool has_code(void (*kernel)(Parameters...)) {
  hipFuncAttributes attributes{};
  const bool has =
      hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) == hipSuccess;
  static_cast<void>(hipGetLastError());  // a missing image is an answer, not an error that stays
  return has;
}

}  // namespace slime::kernels::cuda
