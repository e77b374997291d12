#pragma once

/// Stub of LibTorch's ROCm header of this name: spelling and types of what src/kernels/hip/torch_side.cpp uses.

#include <c10/core/Device.h>
#include <hip/hip_runtime_api.h>

namespace c10::cuda {

class CUDAStream {
 public:
  hipStream_t stream() const;
};
CUDAStream getCurrentCUDAStream(c10::DeviceIndex device_index = -1);

}  // namespace c10::cuda
