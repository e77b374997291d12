#include "kernels/cuda/low_rank_counts.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/recording.h"

namespace slime::kernels::cuda {
namespace {

/// Device memory of equal parts, one for each address that asked, for as long as the process lives. The same byte all over
/// at first.
class Places {
 public:
  Places(int most, size_t bytes, int first_byte)
      : most_(most), bytes_(bytes), first_byte_(first_byte) {}

  /// Null where `stream` is being recorded and there is no memory yet, or no part is left.
  void* of(const void* key, cudaStream_t stream) {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const std::lock_guard lock(mutex_);
    OfDevice& here = devices_[device];
    if (here.memory == nullptr) {
      if (is_recording(stream)) return nullptr;
      const size_t all = bytes_ * static_cast<size_t>(most_);
      check_cuda(cudaMalloc(&here.memory, all), "counters");
      check_cuda(cudaMemset(here.memory, first_byte_, all), "counters");
      check_cuda(cudaDeviceSynchronize(), "counters");  // sync: once, before any kernel reads them
    }
    const auto [place, is_new] = here.places.try_emplace(key, std::ssize(here.places));
    if (place->second >= most_) return nullptr;
    return static_cast<std::byte*>(here.memory) + bytes_ * static_cast<size_t>(place->second);
  }

 private:
  struct OfDevice {
    void* memory = nullptr;
    std::map<const void*, int> places;
  };

  const int most_;
  const size_t bytes_;
  const int first_byte_;
  std::mutex mutex_;
  std::map<int, OfDevice> devices_;  // guarded by mutex_
};

/// Networks and matrices; no two of them share a line of memory.
unsigned* counts_for(const void* counted, cudaStream_t stream) {
  static Places places(/*most=*/16 << 10, /*bytes=*/128, /*first_byte=*/0);
  return static_cast<unsigned*>(places.of(counted, stream));
}

}  // namespace

unsigned* low_rank_counts(const AdapterRows& network, cudaStream_t stream) {
  return counts_for(&network, stream);
}

unsigned* low_rank_counts(const MatrixAdapters& matrix, cudaStream_t stream) {
  return counts_for(&matrix, stream);
}

unsigned* low_rank_flags(const AdapterRows& network, cudaStream_t stream) {
  static Places places(/*most=*/256, sizeof(unsigned) * kMostHiddenFlags, /*first_byte=*/0);
  return static_cast<unsigned*>(places.of(&network, stream));
}

float* low_rank_polled(const AdapterRows& network, cudaStream_t stream) {
  static_assert(kNotMade == 0xffffffff);
  static Places places(/*most=*/256, sizeof(float) * kLowRankPolled, /*first_byte=*/0xff);
  return static_cast<float*>(places.of(&network, stream));
}

}  // namespace slime::kernels::cuda
