#pragma once

/// Threads that find out what constraints allow, while the engine's own launches and publishes steps.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/token_constraint.h"

namespace slime::engine {

/// Mask of one constraint's next token. Once it is done, its caller's; before, nobody touches it or the
/// constraint.
struct NextMask {
  std::shared_ptr<TokenConstraint> constraint;
  std::vector<uint32_t> words;
  TokenConstraint::Allowed allowed = TokenConstraint::Allowed::kNone;
  std::exception_ptr error = nullptr;
  bool is_done = false;  // guarded by the threads' mutex
};

/// They start with the first mask. Called by one thread.
class MaskThreads final {
 public:
  explicit MaskThreads(int num_threads) : num_threads_(num_threads) {}
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  std::shared_ptr<NextMask> begin(std::shared_ptr<TokenConstraint> constraint,
                                  std::size_t num_words);

  using Deadline = std::chrono::steady_clock::time_point;
  /// False: it is not done yet. Throws what the constraint threw.
  bool wait(const NextMask& mask, Deadline deadline);

 private:
  void run();

  const int num_threads_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_done_;
  // Guarded by mutex_.
  std::deque<std::shared_ptr<NextMask>> waiting_;
  bool is_ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace slime::engine
