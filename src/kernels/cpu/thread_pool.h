#pragma once

/// Threads for kernels that last microseconds.
///
/// Work is split into numbered chunks that threads claim one by one, the caller included, so a core
/// that another process took costs the chunk it was on and not a barrier. Idle threads spin
/// briefly, then sleep. A caller that finds the pool taken (trainer and engine are two threads)
/// does its chunks alone.

#include <cstdint>
#include <memory>
#include <type_traits>

namespace slime::kernels::cpu {

/// Threads that take part, the caller included: at::get_num_threads() when first asked, or those of
/// OwnThreads on a thread that has some.
int num_threads();

/// As long as it lives, kernels of the thread that made it run on threads of their own, so that an
/// engine and a trainer share out the cores instead of waiting for one pool.
class OwnThreads {
 public:
  /// `num_threads` >= 1, the calling one included.
  explicit OwnThreads(int num_threads);
  ~OwnThreads();
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

namespace internal {
using ChunkFn = void (*)(const void* context, int64_t chunk);
void run_chunks(int64_t num_chunks, ChunkFn fn, const void* context);
}  // namespace internal

/// Calls fn(chunk) for each chunk in [0, num_chunks), in any order, and returns when all are done.
/// fn must not throw and not call parallel_chunks itself.
template <typename Fn>
void parallel_chunks(int64_t num_chunks, const Fn& fn) {
  internal::run_chunks(
      num_chunks,
      [](const void* context, int64_t chunk) { (*static_cast<const Fn*>(context))(chunk); }, &fn);
}

/// Calls fn(begin, end) on ranges that cover [0, size), none shorter than `grain` but the last.
template <typename Fn>
void parallel_ranges(int64_t size, int64_t grain, const Fn& fn) {
  const int64_t wanted = num_threads() * 4;
  const int64_t step = size / wanted > grain ? (size + wanted - 1) / wanted : grain;
  parallel_chunks((size + step - 1) / step, [&](int64_t chunk) {
    const int64_t begin = chunk * step;
    fn(begin, begin + step < size ? begin + step : size);
  });
}

}  // namespace slime::kernels::cpu
