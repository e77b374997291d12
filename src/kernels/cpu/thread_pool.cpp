#include "kernels/cpu/thread_pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace slime::kernels::cpu {
namespace {

/// About 20 microseconds: longer than the gap between two layers' kernels, shorter than anything a
/// person notices.
constexpr int kSpins = 1000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class ThreadPool final {
 public:
  explicit ThreadPool(int size) {
    for (int i = 1; i < size; ++i) workers_.emplace_back([this] { work(); });
  }

  ~ThreadPool() {
    stopping_ = true;
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t num_chunks, internal::ChunkFn fn, const void* context) {
    std::unique_lock lock(caller_, std::try_to_lock);
    if (!lock || workers_.empty() || num_chunks <= 1) {
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) fn(context, chunk);
      return;
    }
    fn_ = fn;
    context_ = context;
    num_chunks_ = num_chunks;
    next_chunk_.store(0, std::memory_order_relaxed);
    visitors_.store(kOpen);
    epoch_.fetch_add(1);
    if (sleepers_.load() > 0) epoch_.notify_all();
    claim_chunks();
    // From here on nobody enters; who is inside finishes a chunk.
    visitors_.fetch_and(~kOpen);
    while (visitors_.load(std::memory_order_acquire) != 0) relax();
  }

 private:
  static constexpr uint32_t kOpen = 1U << 31;

  void claim_chunks() {
    for (;;) {
      const int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= num_chunks_) return;
      fn_(context_, chunk);
    }
  }

  void work() {
    // Not the epoch of now: a pool that ends before this thread begins has counted already.
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && epoch_.load(std::memory_order_relaxed) == seen; ++i) relax();
      if (epoch_.load() == seen) {
        sleepers_.fetch_add(1);
        epoch_.wait(seen);
        sleepers_.fetch_sub(1);
      }
      seen = epoch_.load();
      if (stopping_) return;
      uint32_t visitors = visitors_.load();
      while ((visitors & kOpen) != 0 && !visitors_.compare_exchange_weak(visitors, visitors + 1)) {
      }
      if ((visitors & kOpen) == 0) continue;
      claim_chunks();
      visitors_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex caller_;  // guards fn_, context_, num_chunks_ between callers
  internal::ChunkFn fn_ = nullptr;
  const void* context_ = nullptr;
  int64_t num_chunks_ = 0;
  std::atomic<int64_t> next_chunk_{0};
  std::atomic<uint32_t> visitors_{0};  // kOpen, and how many workers are inside the job
  std::atomic<uint32_t> epoch_{0};     // counts jobs; workers wait on it
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

thread_local ThreadPool* own_pool = nullptr;  // of OwnThreads

ThreadPool& pool() {
  if (own_pool != nullptr) return *own_pool;
  static ThreadPool shared(std::max(1, at::get_num_threads()));
  return shared;
}

}  // namespace

struct OwnThreads::Pool {
  explicit Pool(int num_threads) : threads(num_threads) {}
  ThreadPool threads;
};

OwnThreads::OwnThreads(int num_threads) : pool_(std::make_unique<Pool>(std::max(1, num_threads))) {
  check(own_pool == nullptr, "a thread has threads of its own once");
  own_pool = &pool_->threads;
}

OwnThreads::~OwnThreads() { own_pool = nullptr; }

int num_threads() { return pool().size(); }

void internal::run_chunks(int64_t num_chunks, ChunkFn fn, const void* context) {
  pool().run(num_chunks, fn, context);
}

}  // namespace slime::kernels::cpu
