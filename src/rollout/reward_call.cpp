#include "rollout/reward_call.h"

#include <fmt/format.h>

#include <algorithm>
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

/// So many times what a reward may take, one waits for threads that take none.
constexpr int kPatience = 10;
constexpr std::chrono::duration<double> kForever(1e9);  // that a clock can still count

/// Both sides share it. The alarm lives on the coroutine's executor and is only touched there.
struct Answer {
  explicit Answer(asio::any_io_executor executor) : alarm(std::move(executor)) {}
  asio::steady_timer alarm;  // goes off when the reward has run for too long
  std::stop_source stop;     // of this call
  bool has_thread = false;   // which runs it
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
    RewardThreads& threads, const ScoreFn& score, Sample sample,
    std::chrono::duration<double> timeout, std::stop_token stop) {
  if (stop.stop_requested()) co_return std::nullopt;
  const auto executor = co_await asio::this_coro::executor;
  auto answer = std::make_shared<Answer>(executor);
  using Ticks = std::chrono::steady_clock::duration;
  const auto allowed = std::chrono::duration_cast<Ticks>(timeout);
  const auto patience = std::chrono::duration_cast<Ticks>(std::min(kPatience * timeout, kForever));
  auto waits_since = std::chrono::steady_clock::now();
  answer->alarm.expires_at(waits_since + patience);
  asio::post(threads.pool,
             [answer, executor, allowed, &threads, score, sample = std::move(sample)] {
               if (answer->stop.stop_requested()) return;
               const auto begin = std::chrono::steady_clock::now();
               threads.last_taken = begin;
               asio::post(executor, [answer, deadline = begin + allowed] {
                 answer->has_thread = true;
                 answer->alarm.expires_at(deadline);
               });
               Expected<json::value> value = value_of(score, sample, answer->stop.get_token());
               asio::post(executor, [answer, value = std::move(value)]() mutable {
                 answer->value = std::move(value);
                 answer->alarm.cancel();
               });
             });
  {
    const std::stop_callback on_stop(stop, [&answer] { answer->alarm.cancel(); });
    while (!answer->value && !stop.stop_requested()) {
      boost::system::error_code ignored;  // an answer, a stop and a new deadline end a wait too
      co_await answer->alarm.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (answer->alarm.expiry() > std::chrono::steady_clock::now()) continue;
      const auto last_taken = threads.last_taken.load();
      if (answer->has_thread || last_taken <= waits_since) break;
      waits_since = last_taken;  // the threads get on, and this one waits its turn
      answer->alarm.expires_at(waits_since + patience);
    }
  }
  if (answer->value) co_return std::move(*answer->value);
  answer->stop.request_stop();
  if (stop.stop_requested()) co_return std::nullopt;
  if (!answer->has_thread) {
    co_return failure(fmt::format("no reward thread became free for {} s: rewards do not end",
                                  kPatience * timeout.count()));
  }
  co_return failure(fmt::format("the reward took longer than {} s", timeout.count()));
}

}  // namespace slime::rollout
