#include "engine/mask_threads.h"

#include <utility>

namespace slime::engine {

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<NextMask> MaskThreads::begin(std::shared_ptr<TokenConstraint> constraint,
                                             std::size_t num_words) {
  auto mask = std::make_shared<NextMask>();
  mask->constraint = std::move(constraint);
  mask->words.assign(num_words, 0);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(mask);
  }
  if (threads_.empty())
    for (int i = 0; i < num_threads_; ++i) threads_.emplace_back([this] { run(); });
  has_work_.notify_one();
  return mask;
}

bool MaskThreads::wait(const NextMask& mask, Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    if (!has_done_.wait_until(lock, deadline, [&] { return mask.is_done; })) return false;
  }
  if (mask.error) std::rethrow_exception(mask.error);
  return true;
}

void MaskThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [&] { return is_ended_ || !waiting_.empty(); });
    if (is_ended_) return;
    const std::shared_ptr<NextMask> mask = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      mask->allowed = mask->constraint->allow(mask->words);
    } catch (...) {
      mask->error = std::current_exception();
    }
    lock.lock();
    mask->is_done = true;
    has_done_.notify_all();
  }
}

}  // namespace slime::engine
