#include "kernels/cuda/low_rank_counts.h"

#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda/recording.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kMostCounted = 16 << 10;  // networks and matrices, of each device
constexpr int kApart = 32;              // numbers, so that no two of them share a line of memory

/// Of one device, for as long as the process lives.
struct Counts {
  unsigned* memory = nullptr;
  std::map<const void*, int> places;
};

unsigned* counts_for(const void* counted, cudaStream_t stream) {
  static std::mutex mutex;
  static std::map<int, Counts> devices;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  Counts& counts = devices[device];
  if (counts.memory == nullptr) {
    if (is_recording(stream)) return nullptr;
    constexpr size_t kBytes = sizeof(unsigned) * kMostCounted * kApart;
    check_cuda(cudaMalloc(&counts.memory, kBytes), "counters");
    check_cuda(cudaMemset(counts.memory, 0, kBytes), "counters");
    check_cuda(cudaDeviceSynchronize(), "counters");  // sync: once, before any kernel reads them
  }
  const auto [place, is_new] = counts.places.try_emplace(counted, std::ssize(counts.places));
  return place->second < kMostCounted ? counts.memory + kApart * place->second : nullptr;
}

}  // namespace

unsigned* low_rank_counts(const AdapterRows& network, cudaStream_t stream) {
  return counts_for(&network, stream);
}

unsigned* low_rank_counts(const MatrixAdapters& matrix, cudaStream_t stream) {
  return counts_for(&matrix, stream);
}

}  // namespace slime::kernels::cuda
