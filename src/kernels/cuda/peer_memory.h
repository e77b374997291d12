#pragma once

/// kernels/gpu/peer_memory.h through CUDA's interprocess handles. They are of memory from cudaMalloc,
/// which LibTorch's allocator divides among tensors: a handle of ours says where in it the tensor is.

#include <cuda_runtime.h>

#include <string>

#include "kernels/gpu/peer_memory.h"

namespace slime::kernels::cuda {

/// Throws std::runtime_error where the tensor's memory cannot be exported.
std::string exported_handle(const Tensor& tensor);

class IpcPeerMemory final : public PeerMemory {
 public:
  /// Throws std::runtime_error for bytes that are no handle, and where this device cannot reach the
  /// other one's memory.
  IpcPeerMemory(int device, const std::string& handle);
  ~IpcPeerMemory() override;
  IpcPeerMemory(const IpcPeerMemory&) = delete;
  IpcPeerMemory& operator=(const IpcPeerMemory&) = delete;

  int64_t size_bytes() const override { return size_; }
  double write(const Tensor& from) override;
  /// Where kernels of this process reach the tensor.
  char* data() const { return static_cast<char*>(memory_) + offset_; }

 private:
  void close();

  int device_;
  int64_t offset_ = 0, size_ = 0;  // of the tensor in the memory
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begins_ = nullptr;
  cudaEvent_t ends_ = nullptr;
};

}  // namespace slime::kernels::cuda
