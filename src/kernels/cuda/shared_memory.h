#pragma once

/// kernels::SharedGpuMemory: pages whose handle travels as a file descriptor, like that of memory on the
/// host. Whoever maps them holds them by itself, so nobody has to wait for the other's end, and no
/// call waits for the whole GPU (cudaFree does).

#include <cuda.h>

#include <atomic>

#include "kernels/gpu/memory.h"

namespace slime::kernels::cuda {

class SharedMemory final : public SharedGpuMemory {
 public:
  /// `mapped_bytes`: as VirtualMemory's.
  SharedMemory(int device, int64_t bytes, std::atomic<int64_t>& mapped_bytes);
  /// Waits for the current stream.
  ~SharedMemory() override;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int64_t size_bytes() const override { return size_; }
  int descriptor() const override { return descriptor_; }
  int device_index() const override { return device_; }
  Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const override;

 private:
  int device_;
  int64_t size_ = 0;
  CUdeviceptr begin_ = 0;
  int descriptor_ = -1;
  std::atomic<int64_t>& mapped_bytes_;
};

}  // namespace slime::kernels::cuda
