#include "gateway/admission.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

// GCC 12 takes the coroutine frame's own operator delete for a mismatch (GCC bug 109224).
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace slime::gateway {

namespace asio = boost::asio;

/// Its timer belongs to its strand; has_place is guarded by the admission's mutex_.
struct Admission::Waiter {
  explicit Waiter(const asio::any_io_executor& strand) : timer(strand) {}
  asio::steady_timer timer;
  bool has_place = false;
};

net::Task<Admission::Place> Admission::enter(Cancellation& cancellation) {
  const auto strand = co_await asio::this_coro::executor;
  std::shared_ptr<Waiter> waiter;
  {
    const std::lock_guard lock(mutex_);
    if (config_.max_running < 0 || num_running_ < config_.max_running) {
      ++num_running_;
      co_return Place(this);
    }
    if (static_cast<int64_t>(waiting_.size()) >= config_.max_waiting) co_return Place(nullptr);
    waiter = std::make_shared<Waiter>(strand);
    waiter->timer.expires_after(config_.max_wait);
    waiting_.push_back(waiter);
  }
  const Cancellation::Scope scope(cancellation, [waiter] { waiter->timer.cancel(); });
  boost::system::error_code ignored;
  co_await waiter->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  const std::lock_guard lock(mutex_);
  if (waiter->has_place) co_return Place(this);
  std::erase(waiting_, waiter);
  co_return Place(nullptr);
}

/// The place goes to who waits longest, so that nobody overtakes.
void Admission::leave() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    --num_running_;
    return;
  }
  const std::shared_ptr<Waiter> next = std::move(waiting_.front());
  waiting_.pop_front();
  next->has_place = true;
  asio::post(next->timer.get_executor(), [next] { next->timer.cancel(); });
}

int64_t Admission::num_running() const {
  const std::lock_guard lock(mutex_);
  return num_running_;
}

int64_t Admission::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

}  // namespace slime::gateway
