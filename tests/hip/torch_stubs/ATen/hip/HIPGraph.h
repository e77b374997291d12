#pragma once

/// Stub of LibTorch's ROCm header of this name: spelling and types of what src/kernels/hip/torch_side.cpp uses.

#include <hip/hip_runtime_api.h>

#include <utility>

namespace at::cuda {

using MempoolId_t = std::pair<unsigned long long, unsigned long long>;

class CUDAGraph {
 public:
  void capture_begin(MempoolId_t pool, hipStreamCaptureMode mode);
  void capture_end();
  void replay();
  MempoolId_t pool();
};

}  // namespace at::cuda
