#pragma once

/// LibTorch's parts for this platform as the host side uses them: current streams, the caching allocator, recordings.
///
/// torch_side.cpp has them of LibTorch's CUDA side, kernels/hip/torch_side.cpp of its ROCm side. No other file includes
/// headers of either.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/tensor.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels::cuda {

/// LibTorch's current stream of this thread on the device.
cudaStream_t current_stream(int device);

/// Gives what the caching allocator keeps for reuse back to the driver.
void release_cached_memory();
/// The beginning of the allocation that `pointer` is in. Throws std::runtime_error where it has none that can be named.
void* beginning_of_allocation(void* pointer);

/// Of the caching allocator, in bytes.
struct AllocatorUse {
  int64_t tensors = 0, peak_tensors = 0;
  int64_t kept = 0, peak_kept = 0;
};
AllocatorUse allocator_use(int device);
void reset_allocator_peaks(int device);

/// As Gpu::record(). `neighbour` is one that this function made, or null.
std::unique_ptr<GpuGraph> record_graph(const std::function<void()>& body, const GpuGraph* neighbour,
                                       GraphLaunch launch);

}  // namespace slime::kernels::cuda
