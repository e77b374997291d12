#pragma once

/// Memory of a GPU whose addresses outlive its contents, and how much of the GPU is in use.
///
/// Trainer and engine on one GPU are colocated and alternate: during the phase of one, what only
/// the other needs is unmapped and given back to the driver. Tensors and recorded steps point at
/// the cache of keys and values, so its addresses stay reserved while its pages go and come back.

#include <cstdint>

#include "core/tensor.h"

namespace slime::kernels {

/// Owned by who reserved it; views of it must not be used after it is gone. Not thread-safe.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;

  /// As requested, rounded up to the driver's pages (2 MiB).
  virtual int64_t size_bytes() const = 0;

  /// Gives the pages back to the driver: their contents are lost, and until map() nothing may touch
  /// the addresses. Waits for the current stream; whoever used them on others has waited for those:
  /// nobody may wait for the whole GPU while an engine records. Nothing happens when they are not
  /// there.
  virtual void unmap() = 0;
  /// Takes pages; what they hold is not defined. Throws c10::OutOfMemoryError, with none taken,
  /// when the driver has not enough. Nothing happens when they are there.
  virtual void map() = 0;

  /// A tensor over the addresses from `offset_bytes` on. It does not own them.
  virtual Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const = 0;
};

/// Memory of a GPU that another process maps as well: what either writes both see, and nothing is
/// copied. The pages go back to the driver when all who have mapped them are done with them. Views must
/// not be used after the object is gone. Not thread-safe.
class SharedGpuMemory {
 public:
  virtual ~SharedGpuMemory() = default;

  /// As requested, rounded up to the driver's pages (2 MiB): what others map.
  virtual int64_t size_bytes() const = 0;
  /// Names the memory to others, who get it through a socket; as long as the object lives.
  virtual int descriptor() const = 0;
  /// Of its GPU, among those that are visible.
  virtual int device_index() const = 0;
  /// As GpuMemory's.
  virtual Tensor view(int64_t offset_bytes, at::IntArrayRef sizes, at::ScalarType type) const = 0;
};

/// In bytes. Peaks are since the last reset_peak_memory().
struct GpuMemoryUse {
  int64_t total = 0;    // of the GPU
  int64_t free = 0;     // as the driver sees it: other processes count
  int64_t mapped = 0;   // in GpuMemory objects of this process
  int64_t tensors = 0;  // in tensors of LibTorch
  int64_t peak_tensors = 0;
  int64_t kept = 0;  // held by LibTorch's allocator, tensors included
  int64_t peak_kept = 0;

  /// Context, modules and workspaces of libraries; other processes, if there are any.
  int64_t elsewhere() const { return total - free - mapped - kept; }
};

}  // namespace slime::kernels
