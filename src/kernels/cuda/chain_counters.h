#pragma once

/// Counters through which the blocks of a chain of products wait for each other
/// (kernels/cuda/product_chain.h): a set for each stream, because kernels of one stream never run
/// at the same time. May be called from any thread.

#include <map>
#include <mutex>

#include "kernels/cuda/product_chain.h"

namespace slime::kernels::cuda {

class ChainCounters final {
 public:
  ChainCounters() = default;
  ChainCounters(const ChainCounters&) = delete;
  ChainCounters& operator=(const ChainCounters&) = delete;
  ~ChainCounters() {
    for (const auto& [stream, counters] : sets_) cudaFree(counters);
  }

  /// Zero. The first call for a stream allocates, which cannot be recorded: a step runs once before
  /// it is.
  uint32_t* of(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    uint32_t*& counters = sets_[stream];
    if (counters == nullptr) {
      constexpr size_t kBytes = ProductChain::kCounters * sizeof(uint32_t);
      check_cuda(cudaMalloc(&counters, kBytes), "counters of products");
      check_cuda(cudaMemsetAsync(counters, 0, kBytes, stream), "counters of products");
    }
    return counters;
  }

 private:
  std::mutex mutex_;
  std::map<cudaStream_t, uint32_t*> sets_;  // guarded
};

}  // namespace slime::kernels::cuda
