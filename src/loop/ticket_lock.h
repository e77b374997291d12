#pragma once

/// A lock that threads get in the order in which they ask for it: between two holds of one thread each that
/// waits has had one.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace slime::loop {

class TicketLock {
 public:
  /// A place in the line. A Hold takes it, sooner or later: those behind wait for that.
  uint64_t take_ticket();

  /// As long as it lives no other thread has the lock.
  class Hold {
   public:
    explicit Hold(TicketLock& lock) : Hold(lock, lock.take_ticket()) {}
    Hold(TicketLock& lock, uint64_t ticket);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    TicketLock& lock_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  uint64_t num_tickets_ = 0;   // guarded by mutex_
  uint64_t num_released_ = 0;  // guarded by mutex_
};

}  // namespace slime::loop
