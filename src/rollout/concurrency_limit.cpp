#include "rollout/concurrency_limit.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace slime::rollout {

namespace asio = boost::asio;

asio::awaitable<ConcurrencyLimit::Permit> ConcurrencyLimit::acquire() {
  if (num_free_ > 0) {
    --num_free_;
    co_return Permit(*this);
  }
  asio::steady_timer woken(co_await asio::this_coro::executor,
                           asio::steady_timer::time_point::max());
  waiting_.push_back(&woken);
  boost::system::error_code cancelled;
  co_await woken.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  co_return Permit(*this);
}

void ConcurrencyLimit::give_back() {
  if (waiting_.empty()) {
    ++num_free_;
    return;
  }
  asio::steady_timer* next = waiting_.front();
  waiting_.pop_front();
  next->cancel();
}

}  // namespace slime::rollout
