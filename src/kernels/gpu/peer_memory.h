#pragma once

/// Memory of one GPU that a process with another GPU of the same host writes to directly, over NVLink
/// or PCIe, without the host's memory: how new weights come to an engine of another process.
///
/// The owner makes a tensor in memory that can be exported (Gpu::make_exportable), and tells its handle
/// (Gpu::export_memory) over whatever connection there is; the other process opens it. When one writes
/// and the other reads is between the two.

#include <cstdint>

#include "core/tensor.h"

namespace slime::kernels {

/// The end that writes. It keeps the memory from being given back also when its owner dies.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  /// Of the exported tensor.
  virtual int64_t size_bytes() const = 0;
  /// Copies `from`, which is contiguous and on this process's GPU or on the host, to the beginning of
  /// the tensor, behind what the current stream has to do; the seconds that it took on the device. Waits
  /// for the GPU. One thread at a time. Throws std::runtime_error.
  virtual double write(const Tensor& from) = 0;
};

}  // namespace slime::kernels
