#pragma once

/// Gate for coroutines of one thread: they pass while it is open, and wait in line while it is closed.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>
#include <vector>

namespace slime::rollout {

class Gate {
 public:
  bool is_open() const { return is_open_; }
  void close() { is_open_ = false; }
  /// Those that wait pass in the order in which they came.
  void open() {
    is_open_ = true;
    for (boost::asio::steady_timer* timer : std::exchange(waiting_, {})) timer->cancel();
  }

  /// The gate outlives who waits.
  boost::asio::awaitable<void> pass() {
    while (!is_open_) {
      boost::asio::steady_timer opened(co_await boost::asio::this_coro::executor,
                                       boost::asio::steady_timer::time_point::max());
      waiting_.push_back(&opened);
      boost::system::error_code cancelled;
      co_await opened.async_wait(
          boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    }
  }

 private:
  bool is_open_ = true;
  std::vector<boost::asio::steady_timer*> waiting_;
};

}  // namespace slime::rollout
