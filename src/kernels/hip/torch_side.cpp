/// The only file that needs headers of LibTorch's ROCm side, which are in no package without ROCm. Where it was written they
/// were not: tests compile it against stubs (tests/hip/torch_stubs), which show spelling and types and nothing else.
///
/// LibTorch's ROCm side keeps the names of CUDA for devices and streams ("masquerading as CUDA"); its headers lie under
/// c10/hip and ATen/hip.

#include "kernels/cuda/torch_side.h"

#include <ATen/ATen.h>
#include <ATen/hip/HIPGraph.h>
#include <c10/hip/HIPCachingAllocator.h>
#include <c10/hip/HIPStream.h>

#include <stdexcept>

namespace slime::kernels::cuda {
namespace {

class RecordedGraph final : public GpuGraph {
 public:
  RecordedGraph(const std::function<void()>& body, const at::cuda::MempoolId_t& pool) {
    graph_.capture_begin(pool, hipStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      graph_.capture_end();
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }
  at::cuda::MempoolId_t pool() const { return graph_.pool(); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // pool() reads it, but is not const
};

}  // namespace

cudaStream_t current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

void release_cached_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

void* beginning_of_allocation(void* pointer) {
  try {
    std::size_t size = 0;
    return c10::cuda::CUDACachingAllocator::getBaseAllocation(pointer, &size);
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

AllocatorUse allocator_use(int device) {
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.tensors = stats.allocated_bytes[kAll].current,
          .peak_tensors = stats.allocated_bytes[kAll].peak,
          .kept = stats.reserved_bytes[kAll].current,
          .peak_kept = stats.reserved_bytes[kAll].peak};
}

void reset_allocator_peaks(int device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

std::unique_ptr<GpuGraph> record_graph(const std::function<void()>& body, const GpuGraph* neighbour,
                                       GraphLaunch /*launch*/) {
  const auto* shared = static_cast<const RecordedGraph*>(neighbour);
  return std::make_unique<RecordedGraph>(
      body, shared == nullptr ? at::cuda::MempoolId_t{0, 0} : shared->pool());
}

}  // namespace slime::kernels::cuda
