#include "rollout/session.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/out_of_memory.h"
#include "core/splitmix64.h"
#include "rollout/engine_call.h"
#include "rollout/reward_call.h"
#include "rollout/sample_growth.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// Null unless the engine cannot compute: the same requests would fail again, so the run ends.
std::exception_ptr failure_of(const engine::FinishReason& finish) {
  if (finish.kind != engine::FinishReason::Kind::kAbort) return nullptr;
  if (finish.cause == engine::FinishReason::Cause::kOutOfMemory)
    return std::make_exception_ptr(OutOfMemory(finish.message));
  if (finish.cause == engine::FinishReason::Cause::kEngineFailed)
    return std::make_exception_ptr(std::runtime_error(finish.message));
  return nullptr;
}

/// Key of a sample's draws.
uint64_t mix(uint64_t seed, uint64_t ordinal) {
  return splitmix64(seed + ordinal * kGoldenRatio64);
}

bool can_go_on(const Sample& sample) {
  return sample.status == Status::kPending || sample.status == Status::kAborted;
}

}  // namespace

Session::Session(engine::EngineClient& engine, const RolloutConfig& config,
                 const RolloutHooks& hooks, const ResponseRules& rules,
                 const std::atomic<bool>& stop, SessionThreads& threads)
    : engine_(engine),
      config_(config),
      hooks_(hooks),
      rules_(rules),
      stop_(stop),
      threads_(threads),
      limit_(config.max_concurrent_samples) {
  threads_.context.restart();
}

Session::~Session() { rewards_stop_.request_stop(); }

std::shared_ptr<GroupInFlight> Session::start(Group group) {
  auto flight = std::make_shared<GroupInFlight>(std::move(group));
  flight->num_open = flight->draws.size();
  ++num_open_groups_;
  for (std::size_t i = 0; i < flight->draws.size(); ++i) {
    Sample& sample = flight->group.samples[i];
    Draw& draw = flight->draws[i];
    draw.tokens_before = sample.response_length();
    if (config_.masks_older_tokens && sample.response_length() > 0) {
      sample.loss_mask.assign(static_cast<std::size_t>(sample.response_length()), 0);
    }
    if (can_go_on(sample) && remaining_tokens(sample, rules_) == 0) {
      sample.status = Status::kTruncated;
      render(sample);
    }
    draw.asks_engine = can_go_on(sample);
    draw.drawn_status = sample.status;
  }
  // The context outlives the session: nothing of the session is left in it unless work() runs it.
  if (is_working_) {
    spawn(flight);
  } else {
    started_.push_back(flight);
  }
  return flight;
}

void Session::spawn(std::shared_ptr<GroupInFlight> flight) {
  for (std::size_t i = 0; i < flight->draws.size(); ++i) {
    // Posted, so that whoever starts the group knows it before it hears of it.
    asio::post(threads_.context, [this, flight, i] {
      asio::co_spawn(threads_.context, run_sample(flight, i), [this](std::exception_ptr error) {
        if (error) fail(error);
      });
    });
  }
}

void Session::work() {
  engine::or_throw(engine_.pause(engine::PauseMode::kInPlace));
  is_working_ = true;
  for (auto& flight : std::exchange(started_, {})) spawn(std::move(flight));
  threads_.context.poll();
  engine::or_throw(engine_.resume());
  watch_for_stop();
  threads_.context.run();
  if (error_) std::rethrow_exception(error_);
}

void Session::close() {
  if (is_closed_) return;
  is_closed_ = true;
  engine::or_throw(engine_.abort_all());
  rewards_stop_.request_stop();
}

void Session::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  close();
}

void Session::render(Sample& sample) const {
  sample.response = hooks_.detokenize(
      std::span(sample.tokens).subspan(static_cast<std::size_t>(sample.prompt_length)));
}

asio::awaitable<void> Session::run_sample(std::shared_ptr<GroupInFlight> flight,
                                          std::size_t index) {
  if (flight->draws[index].asks_engine) {
    co_await draw(flight, index);
    flight->draws[index].drawn_status = flight->group.samples[index].status;
    if (events_.on_drawn) events_.on_drawn(*flight, index);
  }
  co_await score(flight, index);
  if (--flight->num_open > 0) co_return;
  --num_open_groups_;
  if (num_open_groups_ == 0 && stop_alarm_ != nullptr) stop_alarm_->cancel();
  if (events_.on_done) events_.on_done(*flight);
}

asio::awaitable<void> Session::draw(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Sample& sample = flight->group.samples[index];
  const ConcurrencyLimit::Permit permit = co_await limit_.acquire();
  if (is_closed_) {
    sample.status = Status::kAborted;
    co_return;
  }
  engine::GenerateRequest request;
  request.input_ids = sample.tokens;
  request.sampling = rules_.sampling;
  request.sampling.max_new_tokens = remaining_tokens(sample, rules_);
  request.sampling.sampling_seed = mix(rules_.seed, static_cast<uint64_t>(sample.ordinal));
  request.return_logprob = true;
  request.return_top_p_token_ids = rules_.keeps_top_p_ids;
  OnDrawn on_drawn = [this, flight, index](int64_t num_tokens) {
    Draw& draw = flight->draws[index];
    draw.num_drawn = num_tokens;
    if (num_tokens < draw.awaited) return;
    draw.awaited = std::numeric_limits<int64_t>::max();
    asio::post(threads_.context, [this] { tell_reached(); });
  };
  const engine::GenerateUpdate generated =
      co_await generate(engine_, std::move(request), std::move(on_drawn));
  if (const std::exception_ptr failure = failure_of(*generated.finish)) fail(failure);
  append_generated(sample, generated);
  num_generated_tokens_ += static_cast<int64_t>(generated.output_ids.size());
  render(sample);
}

asio::awaitable<void> Session::score(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Sample& sample = flight->group.samples[index];
  const bool is_whole = sample.status == Status::kCompleted || sample.status == Status::kTruncated;
  if (!is_whole || !sample.reward.is_null() || !hooks_.score) co_return;
  auto reward = co_await score_within(threads_.rewards, hooks_.score, sample,
                                      config_.reward_timeout, rewards_stop_.get_token());
  if (!reward) co_return;
  std::optional<std::string> problem;
  if (!*reward) {
    problem = reward->error().message;
  } else if (rules_.reward_problem) {
    problem = rules_.reward_problem(**reward);
  }
  if (problem) {
    sample.status = Status::kFailed;
    sample.failure = "reward: " + *problem;
  } else {
    sample.reward = std::move(**reward);
  }
}

void Session::tell_reached() {
  try {
    if (events_.on_reached) events_.on_reached();
  } catch (...) {
    fail(std::current_exception());
  }
}

/// Looks at the stop flag ten times a second while anything is in flight.
void Session::watch_for_stop() {
  if (num_open_groups_ == 0) return;
  asio::co_spawn(
      threads_.context,
      [](Session& self) -> asio::awaitable<void> {
        asio::steady_timer alarm(co_await asio::this_coro::executor);
        self.stop_alarm_ = &alarm;
        // A sample whose coroutine threw leaves its group open.
        while (self.num_open_groups_ > 0 && !self.error_) {
          if (self.stop_.load()) self.close();
          alarm.expires_after(std::chrono::milliseconds(100));
          boost::system::error_code woken;
          co_await alarm.async_wait(asio::redirect_error(asio::use_awaitable, woken));
        }
        self.stop_alarm_ = nullptr;
      }(*this),
      [](const std::exception_ptr&) {});
}

}  // namespace slime::rollout
