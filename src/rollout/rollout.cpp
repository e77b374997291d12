#include "rollout/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "rollout/engine_call.h"
#include "rollout/reward_call.h"
#include "rollout/sample_growth.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// Counts samples in flight on the rollout's thread; coroutines wait in line for a place.
class Places {
 public:
  explicit Places(int64_t count) : free_(count) {}

  asio::awaitable<void> take() {
    if (free_ > 0) {
      --free_;
      co_return;
    }
    asio::steady_timer turn(co_await asio::this_coro::executor,
                            asio::steady_timer::time_point::max());
    waiting_.push_back(&turn);
    boost::system::error_code woken;
    co_await turn.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }

  /// The place goes to the first in line, if there is one.
  void give() {
    if (waiting_.empty()) {
      ++free_;
      return;
    }
    asio::steady_timer* next = waiting_.front();
    waiting_.pop_front();
    next->cancel();
  }

 private:
  int64_t free_;
  std::deque<asio::steady_timer*> waiting_;
};

/// Null unless the engine cannot compute: the same requests would fail again, so the run ends.
std::exception_ptr failure_of(const engine::FinishReason& finish) {
  if (finish.kind != engine::FinishReason::Kind::kAbort) return nullptr;
  if (finish.status_code == 507) return std::make_exception_ptr(OutOfMemory(finish.message));
  if (finish.status_code == 500) return std::make_exception_ptr(std::runtime_error(finish.message));
  return nullptr;
}

/// One call of `run` or `evaluate`: everything below happens on the calling thread.
class Session {
 public:
  Session(engine::EngineClient& engine, const RolloutConfig& config, const RolloutHooks& hooks,
          const ResponseRules& rules, const std::atomic<bool>& stop)
      : engine_(engine),
        config_(config),
        hooks_(hooks),
        rules_(rules),
        stop_(stop),
        pool_(static_cast<std::size_t>(config.reward_threads)),
        places_(config.max_concurrent_samples) {}

  ~Session() { pool_.stop(); }

  /// Starts a group; `on_finished` gets it when all its samples are done.
  void start(Group group, std::function<void(Group)> on_finished) {
    auto pending = std::make_shared<PendingGroup>(std::move(group), std::move(on_finished));
    pending->num_open = pending->group.samples.size();
    ++num_open_groups_;
    for (std::size_t i = 0; i < pending->group.samples.size(); ++i) {
      asio::co_spawn(context_, run_sample(pending, i), [this](std::exception_ptr error) {
        if (error) fail(error);
      });
    }
  }

  /// Runs until nothing is in flight. The engine sees the first wave of requests as one batch: it
  /// is paused while they are submitted, so that a run repeats.
  void work() {
    engine_.pause(engine::PauseMode::kInPlace);
    context_.poll();
    engine_.resume();
    watch_for_stop();
    context_.run();
    if (error_) std::rethrow_exception(error_);
  }

  /// No sample starts any more; those in the engine come back as they are.
  void abort() {
    if (is_aborting_) return;
    is_aborting_ = true;
    engine_.abort_all();
  }

  /// work() throws the first of these once everything has come back.
  void fail(const std::exception_ptr& error) {
    if (!error_) error_ = error;
    abort();
  }

  bool is_aborting() const { return is_aborting_; }
  int64_t num_generated_tokens() const { return num_generated_tokens_; }

 private:
  struct PendingGroup {
    PendingGroup(Group started, std::function<void(Group)> finished)
        : group(std::move(started)), on_finished(std::move(finished)) {}
    Group group;
    std::function<void(Group)> on_finished;
    std::size_t num_open = 0;
  };

  asio::awaitable<void> run_sample(std::shared_ptr<PendingGroup> pending, std::size_t index) {
    Sample sample = std::move(pending->group.samples[index]);
    if (config_.masks_older_tokens && sample.response_length() > 0) {
      sample.loss_mask.assign(static_cast<std::size_t>(sample.response_length()), 0);
    }
    if (sample.status == Status::kPending || sample.status == Status::kAborted) {
      sample = co_await draw_response(std::move(sample));
    }
    const bool is_done = sample.status == Status::kCompleted || sample.status == Status::kTruncated;
    if (is_done && sample.reward.is_null() && hooks_.score) {
      Expected<json::value> reward =
          co_await score_within(pool_, hooks_.score, sample, config_.reward_timeout);
      if (reward) {
        sample.reward = std::move(*reward);
      } else {
        sample.status = Status::kFailed;
        sample.failure = "reward: " + reward.error().message;
      }
    }
    pending->group.samples[index] = std::move(sample);
    if (--pending->num_open > 0) co_return;
    --num_open_groups_;
    pending->on_finished(std::move(pending->group));
    if (num_open_groups_ == 0 && stop_alarm_ != nullptr) stop_alarm_->cancel();
  }

  asio::awaitable<Sample> draw_response(Sample sample) {
    co_await places_.take();
    if (is_aborting_) {
      sample.status = Status::kAborted;
      places_.give();
      co_return sample;
    }
    engine::GenerateRequest request;
    request.input_ids = sample.tokens;
    request.sampling = rules_.sampling;
    request.sampling.max_new_tokens = remaining_tokens(sample, rules_);
    request.sampling.sampling_seed = mix(rules_.seed, static_cast<uint64_t>(sample.ordinal));
    request.return_logprob = true;
    request.return_top_p_token_ids = rules_.keeps_top_p_ids;
    if (request.sampling.max_new_tokens == 0) {
      sample.status = Status::kTruncated;
    } else {
      const engine::GenerateUpdate generated = co_await generate(engine_, std::move(request));
      if (const std::exception_ptr failure = failure_of(*generated.finish)) fail(failure);
      append_generated(sample, generated);
      num_generated_tokens_ += static_cast<int64_t>(generated.output_ids.size());
    }
    places_.give();
    sample.response = hooks_.detokenize(
        std::span(sample.tokens).subspan(static_cast<std::size_t>(sample.prompt_length)));
    co_return sample;
  }

  /// Key of a sample's draws (splitmix64 of the ordinal, so that neighbours share nothing).
  static uint64_t mix(uint64_t seed, uint64_t ordinal) {
    uint64_t z = seed + (ordinal + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  /// Looks at the stop flag ten times a second while anything is in flight.
  void watch_for_stop() {
    if (num_open_groups_ == 0) return;
    asio::co_spawn(
        context_,
        [](Session& self) -> asio::awaitable<void> {
          asio::steady_timer alarm(co_await asio::this_coro::executor);
          self.stop_alarm_ = &alarm;
          // A sample whose coroutine threw leaves its group open.
          while (self.num_open_groups_ > 0 && !self.error_) {
            if (self.stop_.load()) self.abort();
            alarm.expires_after(std::chrono::milliseconds(100));
            boost::system::error_code woken;
            co_await alarm.async_wait(asio::redirect_error(asio::use_awaitable, woken));
          }
          self.stop_alarm_ = nullptr;
        }(*this),
        [](const std::exception_ptr&) {});
  }

  engine::EngineClient& engine_;
  const RolloutConfig& config_;
  const RolloutHooks& hooks_;
  const ResponseRules& rules_;
  const std::atomic<bool>& stop_;
  asio::io_context context_{1};
  asio::thread_pool pool_;
  Places places_;
  asio::steady_timer* stop_alarm_ = nullptr;
  int64_t num_open_groups_ = 0;
  int64_t num_generated_tokens_ = 0;
  bool is_aborting_ = false;
  std::exception_ptr error_;
};

const Sample* find_status(const Group& group, Status status) {
  const auto found = std::ranges::find(group.samples, status, &Sample::status);
  return found == group.samples.end() ? nullptr : &*found;
}

/// Back to an untouched prompt: what the original would have thrown away with it.
void forget_response(Group& group) {
  for (Sample& sample : group.samples) {
    sample.tokens.resize(static_cast<std::size_t>(sample.prompt_length));
    sample.log_probs.clear();
    sample.loss_mask.clear();
    sample.versions.clear();
    sample.response.clear();
    sample.reward = nullptr;
    sample.failure.clear();
    sample.top_p_ids.clear();
    sample.top_p_offsets.clear();
    sample.routed_experts.clear();
    sample.engine_prompt_tokens = 0;
    sample.cached_tokens = 0;
    sample.generation_seconds = 0;
    sample.status = Status::kPending;
  }
}

}  // namespace

Rollout::Rollout(engine::EngineClient& engine, RolloutConfig config, RolloutHooks hooks)
    : engine_(engine), config_(config), hooks_(std::move(hooks)) {}

RolloutResult Rollout::run(const ResponseRules& rules, const std::atomic<bool>& stop) {
  Session session(engine_, config_, hooks_, rules, stop);
  RolloutResult result;
  std::vector<Group> handed_back;
  int64_t num_under_way = 0;  // started and not rejected
  bool data_ended = false;
  std::function<void(Group)> on_finished;

  const auto refill = [&] {
    while (num_under_way < config_.groups_per_step && !data_ended && !session.is_aborting()) {
      std::vector<Group> groups = hooks_.take_groups(config_.groups_per_refill);
      data_ended = groups.empty();
      num_under_way += static_cast<int64_t>(groups.size());
      for (Group& group : groups) session.start(std::move(group), on_finished);
    }
  };
  const auto drop = [&](const Group& group, const std::string& reason) {
    --num_under_way;
    ++result.drops[reason];
    if (hooks_.on_drop) hooks_.on_drop(group, reason);
    refill();
  };
  on_finished = [&](Group group) {
    if (find_status(group, Status::kAborted) != nullptr) {
      handed_back.push_back(std::move(group));
      return;
    }
    if (const Sample* failed = find_status(group, Status::kFailed)) {
      if (++result.num_failed_groups > config_.max_failed_groups) {
        throw ConfigError(fmt::format("{} groups failed in one rollout step; sample {}: {}",
                                      result.num_failed_groups, failed->ordinal, failed->failure));
      }
      drop(group, "failed");
      return;
    }
    const FilterVerdict verdict = hooks_.filter ? hooks_.filter(group) : FilterVerdict{};
    const bool would_refill = num_under_way <= config_.groups_per_step;
    if (!verdict.keep && !(verdict.keep_when_insufficient && would_refill)) {
      drop(group, verdict.reason);
      return;
    }
    if (static_cast<int64_t>(result.groups.size()) >= config_.groups_per_step) {
      handed_back.push_back(std::move(group));
      return;
    }
    result.groups.push_back(std::move(group));
    if (hooks_.on_progress) {
      hooks_.on_progress(static_cast<int64_t>(result.groups.size()),
                         session.num_generated_tokens());
    }
    if (static_cast<int64_t>(result.groups.size()) == config_.groups_per_step) session.abort();
  };

  refill();
  session.work();
  if (!handed_back.empty()) {
    if (!config_.keeps_partial) std::ranges::for_each(handed_back, forget_response);
    std::ranges::sort(handed_back, {}, &Group::ordinal);
    hooks_.give_back(std::move(handed_back));
  }
  std::ranges::sort(result.groups, {},
                    [](const Group& group) { return group.samples.front().ordinal; });
  result.generated_tokens = session.num_generated_tokens();
  return result;
}

std::vector<Group> Rollout::evaluate(std::vector<Group> groups, const ResponseRules& rules,
                                     const std::atomic<bool>& stop) {
  Session session(engine_, config_, hooks_, rules, stop);
  std::vector<Group> finished;
  finished.reserve(groups.size());
  for (Group& group : groups) {
    session.start(std::move(group), [&](Group done) {
      finished.push_back(std::move(done));
      if (hooks_.on_progress) {
        hooks_.on_progress(static_cast<int64_t>(finished.size()), session.num_generated_tokens());
      }
    });
  }
  session.work();
  std::ranges::sort(finished, {}, &Group::ordinal);
  return finished;
}

}  // namespace slime::rollout
