#pragma once

/// Awaitable for an answer from outside the rollout's thread, through a callback. It always comes, and in time:
/// the answering side has a deadline of its own.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "rollout/answer.h"

namespace slime::rollout {

/// The answer; nothing when `stop` is requested first, on the thread of the coroutine. A later
/// answer is dropped, and whoever is asked is told as soon as nobody waits any more.
template <typename T>
boost::asio::awaitable<std::optional<Expected<T>>> ask_elsewhere(AskFn<T> ask,
                                                                 std::stop_token stop) {
  namespace asio = boost::asio;
  /// It may outlive the coroutine, and the context it ran on.
  struct Answer {
    std::mutex mutex;
    asio::steady_timer* alarm = nullptr;  // of who waits; guarded by mutex: null when nobody does
    std::optional<Expected<T>> value;     // the coroutine's executor alone touches it
  };
  if (stop.stop_requested()) co_return std::nullopt;
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer alarm(executor, asio::steady_timer::time_point::max());
  const auto answer = std::make_shared<Answer>();
  answer->alarm = &alarm;
  std::stop_source call;  // ends with whoever waits, so that nobody goes on for nothing
  const std::shared_ptr<void> at_end(nullptr, [answer, call](void*) mutable {
    {
      const std::lock_guard lock(answer->mutex);
      answer->alarm = nullptr;
    }
    call.request_stop();
  });
  ask(call.get_token(), [answer, executor](Expected<T> given) {
    const std::lock_guard lock(answer->mutex);
    if (answer->alarm == nullptr) return;
    asio::post(executor, [answer, given = std::move(given)]() mutable {
      const std::lock_guard still_there(answer->mutex);
      if (answer->alarm == nullptr) return;
      answer->value = std::move(given);
      answer->alarm->cancel();
    });
  });
  const std::stop_callback on_stop(stop, [&alarm] { alarm.cancel(); });
  while (!answer->value && !stop.stop_requested()) {
    boost::system::error_code ignored;  // an answer and a stop end the wait
    co_await alarm.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return std::move(answer->value);
}

}  // namespace slime::rollout
