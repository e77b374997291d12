#pragma once

/// Memory of a GPU: reserved, shared, exported to other processes, and measured.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/tensor.h"
#include "kernels/gpu/memory.h"
#include "kernels/gpu/peer_memory.h"

namespace slime::kernels {

class GpuMemoryManager {
 public:
  virtual ~GpuMemoryManager() = default;

  /// Bytes that could be allocated now, those that the allocator keeps for reuse included.
  virtual int64_t free_bytes() const = 0;
  /// Returns what the allocator keeps for reuse to the driver, so that large tensors fit again.
  virtual void release_unused_memory() = 0;
  /// Addresses with pages behind them, which can be given back for a while. Throws
  /// c10::OutOfMemoryError.
  virtual std::unique_ptr<GpuMemory> reserve_memory(int64_t bytes) = 0;
  /// Tensors on the GPU that `body` makes can be exported; others need not be.
  virtual void make_exportable(const std::function<void()>& body) = 0;
  /// The handle of a contiguous tensor made so, with which processes that have other GPUs of this host
  /// write to its memory (kernels/gpu/peer_memory.h); bytes, not text. Throws std::runtime_error where
  /// there is no such thing.
  virtual std::string export_memory(const Tensor& tensor) = 0;
  /// What another process has exported. Throws std::runtime_error, with the reason, where this GPU
  /// cannot reach it.
  virtual std::unique_ptr<PeerMemory> open_peer_memory(const std::string& handle) = 0;
  /// Memory for this process and others; what it holds is not defined. Throws c10::OutOfMemoryError.
  virtual std::unique_ptr<SharedGpuMemory> share_memory(int64_t bytes) = 0;
  /// Locks the pages of a tensor on the host, so that copies to and from it run beside kernels;
  /// they are unlocked before it goes.
  virtual void lock_pages(const Tensor& host) const = 0;
  virtual void unlock_pages(const Tensor& host) const = 0;
  virtual GpuMemoryUse memory_use() const = 0;
  virtual void reset_peak_memory() = 0;
};

}  // namespace slime::kernels
