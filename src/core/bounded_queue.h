#pragma once

/// A queue between threads, with a bound. Producers wait while it is full, consumers while it is
/// empty; closing it wakes everybody. Elements are moved, never shared.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

namespace slime {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t limit) : limit_(limit) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  /// Waits for room. False when the queue was closed; the element is dropped then.
  bool push(T element) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || elements_.size() < limit_; });
    if (closed_) return false;
    elements_.push_back(std::move(element));
    lock.unlock();
    filled_.notify_one();
    return true;
  }

  /// False when full or closed; `element` is untouched then.
  bool try_push(T& element) {
    std::unique_lock lock(mutex_);
    if (closed_ || elements_.size() >= limit_) return false;
    elements_.push_back(std::move(element));
    lock.unlock();
    filled_.notify_one();
    return true;
  }

  /// Waits for an element. Empty when the queue is closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !elements_.empty(); });
    return take(lock);
  }

  /// Waits so long for an element or the end. True: there is one, or the queue is closed.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return filled_.wait_for(lock, time, [&] { return closed_ || !elements_.empty(); });
  }

  /// Empty when there is nothing now.
  std::optional<T> try_pop() {
    std::unique_lock lock(mutex_);
    return take(lock);
  }

  /// No element is accepted any more; those inside can still be popped.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    room_.notify_all();
    filled_.notify_all();
  }

  bool is_closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return elements_.size();
  }

 private:
  std::optional<T> take(std::unique_lock<std::mutex>& lock) {
    if (elements_.empty()) return std::nullopt;
    std::optional<T> element(std::move(elements_.front()));
    elements_.pop_front();
    lock.unlock();
    room_.notify_one();
    return element;
  }

  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable room_;    // signalled when an element leaves
  std::condition_variable filled_;  // signalled when one arrives
  std::deque<T> elements_;          // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
};

}  // namespace slime
