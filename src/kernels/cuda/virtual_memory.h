#pragma once

/// kernels::GpuMemory through the driver's virtual memory calls.

#include <cuda.h>

#include <atomic>

#include "kernels/gpu/memory.h"

namespace slime::kernels::cuda {

class VirtualMemory final : public GpuMemory {
 public:
  /// Reserves addresses and maps them. `mapped_bytes` counts the bytes of all such objects that are
  /// mapped; it outlives this one.
  VirtualMemory(int device, int64_t bytes, std::atomic<int64_t>& mapped_bytes);
  ~VirtualMemory() override;
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  int64_t size_bytes() const override { return size_; }
  void unmap() override;
  void map() override;
  Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const override;

 private:
  int device_;
  int64_t size_ = 0;  // a multiple of the granularity
  CUdeviceptr begin_ = 0;
  bool is_mapped_ = false;
  std::atomic<int64_t>& mapped_bytes_;
};

}  // namespace slime::kernels::cuda
