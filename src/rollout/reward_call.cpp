#include "rollout/reward_call.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// Both sides share it. The alarm lives on the coroutine's executor and is only touched there.
struct Answer {
  explicit Answer(asio::any_io_executor executor) : alarm(std::move(executor)) {}
  asio::steady_timer alarm;  // goes off when the reward has run for too long
  std::stop_source stop;     // of this call
  std::optional<Expected<json::value>> value;
};

Expected<json::value> value_of(const ScoreFn& score, const Sample& sample,
                               const std::stop_token& stop) {
  try {
    return score(sample, stop);
  } catch (const std::exception& error) {
    return failure(error.what());
  }
}

}  // namespace

asio::awaitable<std::optional<Expected<json::value>>> score_within(
    asio::thread_pool& pool, const ScoreFn& score, Sample sample,
    std::chrono::duration<double> timeout, std::stop_token stop) {
  if (stop.stop_requested()) co_return std::nullopt;
  const auto executor = co_await asio::this_coro::executor;
  auto answer = std::make_shared<Answer>(executor);
  answer->alarm.expires_at(std::chrono::steady_clock::time_point::max());
  const auto allowed = std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout);
  asio::post(pool, [answer, executor, allowed, score, sample = std::move(sample)] {
    if (answer->stop.stop_requested()) return;
    const auto deadline = std::chrono::steady_clock::now() + allowed;
    asio::post(executor, [answer, deadline] { answer->alarm.expires_at(deadline); });
    Expected<json::value> value = value_of(score, sample, answer->stop.get_token());
    asio::post(executor, [answer, value = std::move(value)]() mutable {
      answer->value = std::move(value);
      answer->alarm.cancel();
    });
  });
  {
    const std::stop_callback on_stop(stop, [&answer] { answer->alarm.cancel(); });
    // Setting the deadline ends a wait too.
    auto wait_ended = boost::system::error_code(asio::error::operation_aborted);
    while (wait_ended && !answer->value && !stop.stop_requested())
      co_await answer->alarm.async_wait(asio::redirect_error(asio::use_awaitable, wait_ended));
  }
  if (answer->value) co_return std::move(*answer->value);
  answer->stop.request_stop();
  if (stop.stop_requested()) co_return std::nullopt;
  co_return failure(fmt::format("the reward took longer than {} s", timeout.count()));
}

}  // namespace slime::rollout
