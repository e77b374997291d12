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

#include "rollout/ask.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// So many times what a reward may take, one waits for threads that take none.
constexpr int kPatience = 10;
constexpr std::chrono::duration<double> kForever(1e9);  // that a clock can still count

/// Both sides share it. The alarm lives on the coroutine's executor and is only touched there.
struct Answer {
  explicit Answer(asio::any_io_executor executor)
      : alarm(std::move(executor), asio::steady_timer::time_point::max()) {}
  asio::steady_timer alarm;  // goes off at the deadline, when the reward has run for too long
  Clock::TimePoint deadline;
  std::stop_source stop;    // of this call
  bool has_thread = false;  // which runs it
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
    Runtime& runtime, const ScoreFn& score, Sample sample, std::chrono::duration<double> timeout,
    std::stop_token stop) {
  if (stop.stop_requested()) co_return std::nullopt;
  const auto executor = co_await asio::this_coro::executor;
  auto answer = std::make_shared<Answer>(executor);
  using Ticks = Clock::Duration;
  const auto allowed = std::chrono::duration_cast<Ticks>(timeout);
  const auto patience = std::chrono::duration_cast<Ticks>(std::min(kPatience * timeout, kForever));
  const auto set_deadline = [&runtime](const std::shared_ptr<Answer>& of, Clock::TimePoint when) {
    of->deadline = when;
    runtime.wake_at(std::shared_ptr<asio::steady_timer>(of, &of->alarm), when);
  };
  auto waits_since = runtime.now();
  set_deadline(answer, waits_since + patience);
  runtime.score({.sample = std::move(sample),
                 .stop = answer->stop.get_token(),
                 .taken =
                     [answer, executor, allowed, &runtime, set_deadline] {
                       const Clock::TimePoint begin = runtime.now();
                       runtime.last_taken = begin;
                       asio::post(executor, [answer, set_deadline, deadline = begin + allowed] {
                         answer->has_thread = true;
                         set_deadline(answer, deadline);
                       });
                     },
                 .score =
                     [answer, score](const Sample& to_score) {
                       return value_of(score, to_score, answer->stop.get_token());
                     },
                 .answer =
                     [answer, executor](Expected<json::value> value) {
                       asio::post(executor, [answer, value = std::move(value)]() mutable {
                         answer->value = std::move(value);
                         answer->alarm.cancel();
                       });
                     }});
  {
    const std::stop_callback on_stop(stop, [&answer] { answer->alarm.cancel(); });
    while (!answer->value && !stop.stop_requested()) {
      boost::system::error_code ignored;  // an answer, a stop and a new deadline end a wait too
      co_await answer->alarm.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (answer->deadline > runtime.now()) continue;
      const auto last_taken = runtime.last_taken.load();
      if (answer->has_thread || last_taken <= waits_since) break;
      waits_since = last_taken;  // the threads get on, and this one waits its turn
      set_deadline(answer, waits_since + patience);
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

asio::awaitable<std::optional<Expected<Sample>>> score_elsewhere(AskScoreFn ask, Sample sample,
                                                                 std::stop_token stop) {
  AskFn<Sample> ask_once = [ask = std::move(ask), sample = std::move(sample)](
                               std::stop_token stop_call, AnswerFn<Sample> answer) mutable {
    ask(std::move(sample), std::move(stop_call), std::move(answer));
  };
  co_return co_await ask_elsewhere<Sample>(std::move(ask_once), std::move(stop));
}

}  // namespace slime::rollout
