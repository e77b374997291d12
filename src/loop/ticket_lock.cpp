#include "loop/ticket_lock.h"

namespace slime::loop {

uint64_t TicketLock::take_ticket() {
  const std::lock_guard guard(mutex_);
  return num_tickets_++;
}

TicketLock::Hold::Hold(TicketLock& lock, uint64_t ticket) : lock_(lock) {
  std::unique_lock guard(lock_.mutex_);
  lock_.released_.wait(guard, [&] { return lock_.num_released_ == ticket; });
}

TicketLock::Hold::~Hold() {
  {
    const std::lock_guard guard(lock_.mutex_);
    ++lock_.num_released_;
  }
  lock_.released_.notify_all();
}

}  // namespace slime::loop
