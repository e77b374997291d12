#include "rollout/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/out_of_memory.h"
#include "core/splitmix64.h"
#include "rollout/reward_call.h"
#include "rollout/sample_growth.h"
#include "rollout/verdict.h"

namespace slime::rollout {

namespace asio = boost::asio;

namespace {

/// Null unless the engine cannot compute, or is gone and nobody took its place: the same requests
/// would fail again, so the run ends.
std::exception_ptr failure_of(const engine::FinishReason& finish) {
  if (finish.kind != engine::FinishReason::Kind::kAbort) return nullptr;
  if (finish.cause == engine::FinishReason::Cause::kOutOfMemory)
    return std::make_exception_ptr(OutOfMemory(finish.message));
  if (finish.cause == engine::FinishReason::Cause::kEngineFailed ||
      finish.cause == engine::FinishReason::Cause::kEngineLost)
    return std::make_exception_ptr(std::runtime_error(finish.message));
  return nullptr;
}

std::exception_ptr exception_of(const Error& error) {
  return std::make_exception_ptr(std::runtime_error(error.message));
}

bool can_go_on(const Sample& sample) {
  return sample.status == Status::kPending || sample.status == Status::kAborted;
}

/// A response of an earlier session whose tokens have top-p ids where those of this one have none,
/// or the other way round (--rollout-top-p was changed on resume): no trainer can replay such a
/// mixture, so it is drawn anew.
bool has_other_records(const Sample& sample, const ResponseRules& rules) {
  return sample.response_length() > 0 && sample.top_p_offsets.empty() == rules.keeps_top_p_ids;
}

}  // namespace

uint64_t draw_key(uint64_t seed, int64_t ordinal) {
  return splitmix64(seed + static_cast<uint64_t>(ordinal) * kGoldenRatio64);
}

Session::Session(const RolloutContext& context, ResponseRules rules, std::string name)
    : context_(context),
      rules_(std::move(rules)),
      name_(std::move(name)),
      requests_(context.engine, context.runtime.context(), context.config.max_concurrent_samples,
                [this](const Error& error) { fail(exception_of(error)); }) {}

Session::~Session() { rewards_stop_.request_stop(); }

std::shared_ptr<GroupInFlight> Session::start(Group group, int64_t attempt) {
  auto flight = std::make_shared<GroupInFlight>(std::move(group), attempt);
  flight->num_open = flight->draws.size();
  for (std::size_t i = 0; i < flight->draws.size(); ++i) {
    Sample& sample = flight->group.samples[i];
    Draw& draw = flight->draws[i];
    if (has_other_records(sample, rules_)) {
      tell_discarded(context_.hooks, flight->group.ordinal, sample.response_length());
      cut_response(sample, 0);
      render(sample);
    }
    draw.tokens_before = sample.response_length();
    if (can_go_on(sample) && remaining_tokens(sample, rules_) == 0) {
      sample.status = Status::kTruncated;
      render(sample);
    }
    draw.asks_engine = can_go_on(sample);
    num_drawing_ += draw.asks_engine ? 1 : 0;
    draw.drawn_status = sample.status;
  }
  if (has_begun_) {
    spawn(flight);
  } else {
    started_.push_back(flight);
  }
  return flight;
}

void Session::spawn(std::shared_ptr<GroupInFlight> flight) {
  for (std::size_t i = 0; i < flight->draws.size(); ++i) {
    ++num_running_;
    // Posted, so that whoever starts the group knows it before it hears of it.
    asio::post(context_.runtime.context(), [this, flight, i] {
      asio::co_spawn(context_.runtime.context(), run_sample(flight, i),
                     [this](std::exception_ptr error) {
                       --num_running_;
                       if (error) fail(error);
                       tell_when_idle();
                     });
    });
  }
}

void Session::begin(bool as_one_batch) {
  if (as_one_batch) {
    int64_t num_draws = 0;
    for (const auto& flight : started_)
      num_draws += std::ranges::count(flight->draws, true, &Draw::asks_engine);
    engine::or_throw(requests_.begin_first_wave(num_draws));
  }
  has_begun_ = true;
  for (auto& flight : std::exchange(started_, {})) spawn(std::move(flight));
  tell_when_idle();
}

void Session::close() {
  if (is_closed_) return;
  is_closed_ = true;
  rewards_stop_.request_stop();
  const Expected<void> closed = requests_.close();
  if (!closed && !error_) error_ = exception_of(closed.error());
  tell_when_quiet();
  tell_when_idle();
}

void Session::drain(std::function<void()> on_quiet) {
  on_quiet_ = std::move(on_quiet);
  tell_when_quiet();
}

void Session::interrupt(std::function<void()> on_quiet) {
  on_quiet_ = std::move(on_quiet);
  const Expected<void> aborted = requests_.interrupt();
  if (!aborted) fail(exception_of(aborted.error()));
  tell_when_quiet();
}

void Session::tell_when_quiet() {
  const bool may_be_quiet = num_drawing_ == 0 || requests_.is_interrupted() || is_closed_;
  if (on_quiet_ && may_be_quiet && !requests_.has_in_flight()) std::exchange(on_quiet_, nullptr)();
}

void Session::abort(GroupInFlight& flight) {
  flight.is_aborted = true;
  for (const Draw& draw : flight.draws) {
    if (!draw.under_way) continue;
    const Expected<void> aborted = requests_.abort(*draw.under_way);
    if (!aborted) return fail(exception_of(aborted.error()));
  }
}

Group Session::as_it_is(const GroupInFlight& flight) const {
  Group group = flight.group;
  for (std::size_t i = 0; i < group.samples.size(); ++i) {
    if (!flight.draws[i].under_way) continue;
    engine::GenerateUpdate drawn = flight.draws[i].under_way->drawn->copy();
    drawn.finish = engine::aborted(engine::FinishReason::Cause::kRequested, "under way");
    append_generated(group.samples[i], drawn);
    render(group.samples[i]);
  }
  return group;
}

void Session::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  close();
  tell_when_idle();
}

void Session::tell_when_idle() {
  const bool never_began = error_ && !has_begun_;
  if (idle_check_is_posted_ || num_running_ > 0 || !(has_begun_ || never_began)) return;
  idle_check_is_posted_ = true;
  asio::post(context_.runtime.context(), [this] {
    idle_check_is_posted_ = false;
    const std::function<void()> on_idle = events_.on_idle;  // the call may destroy the session
    if (num_running_ == 0 && on_idle) on_idle();
  });
}

void Session::render(Sample& sample) const {
  sample.response = context_.hooks.detokenize(
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
  if (events_.on_done) events_.on_done(*flight);
}

engine::GenerateRequest Session::request_for(const GroupInFlight& flight,
                                             const Sample& sample) const {
  engine::GenerateRequest request;
  // Servers abort by prefix: no rid is the beginning of another one in flight.
  request.rid = fmt::format("{}-{}.{}", name_, sample.ordinal, flight.attempt);
  request.input_ids = sample.tokens;
  request.sampling = rules_.sampling;
  request.sampling.max_new_tokens = remaining_tokens(sample, rules_);
  request.sampling.sampling_seed = draw_key(rules_.seed, sample.ordinal);
  request.return_logprob = true;
  request.return_top_p_token_ids = rules_.keeps_top_p_ids;
  return request;
}

asio::awaitable<void> Session::draw(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  {
    const ConcurrencyLimit::Permit permit = co_await requests_.acquire();
    while (co_await draw_once(flight, index)) {
    }
  }
  --num_drawing_;
  render(flight->group.samples[index]);
  tell_when_quiet();
}

/// True: it was interrupted, and is to go on.
asio::awaitable<bool> Session::draw_once(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Sample& sample = flight->group.samples[index];
  Draw& draw = flight->draws[index];
  if (flight->is_aborted) {
    sample.status = Status::kAborted;
    co_return false;
  }
  OnDrawn on_drawn = [this, flight, index](int64_t num_tokens) {
    Draw& draw = flight->draws[index];
    draw.num_drawn = num_tokens;
    if (num_tokens < draw.awaited) return;
    draw.awaited = std::numeric_limits<int64_t>::max();
    // The engine's last update is posted after this, so the session is there when this runs.
    asio::post(context_.runtime.context(), [this] { tell_reached(); });
  };
  std::function<std::optional<engine::GenerateRequest>()> make_request =
      [this, &flight, &sample]() -> std::optional<engine::GenerateRequest> {
    if (flight->is_aborted) return std::nullopt;  // while it waited at the gate
    return request_for(*flight, sample);
  };
  const std::optional<engine::GenerateUpdate> generated =
      co_await requests_.draw(std::move(make_request), draw.under_way, std::move(on_drawn));
  if (!generated) {
    sample.status = Status::kAborted;
    co_return false;
  }
  if (const std::exception_ptr failure = failure_of(*generated->finish)) fail(failure);
  append_generated(sample, *generated);
  tell_when_quiet();
  if (sample.status != Status::kAborted || is_closed_ || flight->is_aborted) co_return false;
  if (requests_.is_interrupted() && remaining_tokens(sample, rules_) > 0) co_return true;
  draw.engine_gave_up = "the engine gave it up: " + generated->finish->message;
  co_return false;
}

asio::awaitable<void> Session::score(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Sample& sample = flight->group.samples[index];
  const bool is_whole = sample.status == Status::kCompleted || sample.status == Status::kTruncated;
  const RolloutHooks& hooks = context_.hooks;
  if (!is_whole || !sample.reward.is_null()) co_return;
  if (hooks.ask_score) {
    auto scored = co_await score_elsewhere(hooks.ask_score, sample, rewards_stop_.get_token());
    if (scored) take_score(sample, std::move(*scored));
    co_return;
  }
  if (!hooks.score) co_return;
  const auto timeout =
      hooks.reward_timeout ? hooks.reward_timeout(sample) : context_.config.reward_timeout;
  auto reward = co_await score_within(context_.runtime, hooks.score, sample, timeout,
                                      rewards_stop_.get_token());
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

void Session::take_score(Sample& sample, Expected<Sample> scored) const {
  std::optional<std::string> problem;
  if (!scored) {
    problem = scored.error().message;
  } else if (rules_.reward_problem && scored->status != Status::kFailed) {
    problem = rules_.reward_problem(scored->reward);
  }
  if (scored) sample = std::move(*scored);
  if (!problem) return;
  sample.status = Status::kFailed;
  sample.reward = nullptr;
  sample.failure = "reward: " + *problem;
}

void Session::tell_reached() {
  try {
    if (events_.on_reached) events_.on_reached();
  } catch (...) {
    fail(std::current_exception());
  }
}

}  // namespace slime::rollout
