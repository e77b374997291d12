#include "rollout/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/out_of_memory.h"
#include "core/splitmix64.h"
#include "rollout/ask.h"
#include "rollout/other_records.h"
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

int64_t num_with_log_prob(const std::vector<Sample>& samples) {
  int64_t count = 0;
  for (const Sample& sample : samples) count += static_cast<int64_t>(sample.log_probs.size());
  return count;
}

}  // namespace

uint64_t draw_key(uint64_t seed, int64_t ordinal) {
  return splitmix64(seed + static_cast<uint64_t>(ordinal) * kGoldenRatio64);
}

uint64_t draw_key(uint64_t seed, std::span<const TokenId> prompt, int64_t index_in_group) {
  uint64_t key = seed;
  for (const TokenId id : prompt) key = splitmix64(key ^ static_cast<uint64_t>(id));
  return draw_key(key, index_in_group);
}

Session::Session(const RolloutContext& context, ResponseRules rules, std::string name)
    : context_(context),
      rules_(std::move(rules)),
      name_(std::move(name)),
      requests_(context.engine, context.runtime.context(), context.config.max_concurrent_samples,
                [this](const Error& error) { fail(exception_of(error)); }) {}

Session::~Session() {
  rewards_stop_.request_stop();
  functions_stop_.request_stop();
}

std::string GroupInFlight::why_given_up(std::size_t index) const {
  const bool is_known = index < draws.size() && draws[index].engine_gave_up;
  return is_known ? *draws[index].engine_gave_up : "aborted";
}

void GroupInFlight::gather_parts() {
  for (Draw& draw : draws)
    std::ranges::move(std::exchange(draw.other_parts, {}), std::back_inserter(group.samples));
}

Group GroupInFlight::to_hand_back(bool keeps_tokens) {
  if (keeps_tokens || !begun) return std::move(group);
  forget_response(*begun);
  return std::move(*begun);
}

std::shared_ptr<GroupInFlight> Session::start(Group group, int64_t attempt) {
  auto flight = std::make_shared<GroupInFlight>(std::move(group), attempt);
  flight->num_open = flight->draws.size();
  if (rules_.generate) flight->begun = flight->group;
  const bool is_whole = !rules_.is_evaluation && context_.hooks.prompts->is_replayed(flight->group);
  for (std::size_t i = 0; i < flight->draws.size(); ++i) {
    Sample& sample = flight->group.samples[i];
    Draw& draw = flight->draws[i];
    if (is_whole && sample.response.empty()) render(sample);
    if (!rules_.generate && !is_whole && has_other_records(sample, rules_)) {
      tell_discarded(context_.hooks.prompts, flight->group.ordinal, sample.response_length());
      cut_response(sample, 0);
      render(sample);
    }
    draw.tokens_before = sample.response_length();
    if (!rules_.generate && can_go_on(sample) && remaining_tokens(sample, rules_) == 0) {
      sample.status = Status::kTruncated;
      render(sample);
    }
    draw.asks_engine = can_go_on(sample);
    num_drawing_ += draw.asks_engine ? 1 : 0;
    draw.sampled_status = sample.status;
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
  if (as_one_batch && !rules_.generate) {
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
  end_functions();
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
  for (Draw& draw : flight.draws) {
    draw.call.request_stop();
    if (!draw.under_way) continue;
    const Expected<void> aborted = requests_.abort(*draw.under_way);
    if (!aborted) return fail(exception_of(aborted.error()));
  }
}

Group Session::as_it_is(const GroupInFlight& flight) const {
  Group group = flight.group;
  for (std::size_t i = 0; i < flight.draws.size(); ++i) {
    // Nobody could score the others apart from it: it is sampled again.
    if (!flight.draws[i].other_parts.empty()) group.samples[i] = flight.begun->samples[i];
    if (!flight.draws[i].under_way) continue;
    engine::GenerateUpdate sampled = flight.draws[i].under_way->sampled->copy();
    sampled.finish = engine::aborted(engine::FinishReason::Cause::kRequested, "under way");
    append_generated(group.samples[i], sampled);
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
    if (num_running_ > 0) return;
    if (std::exchange(has_told_functions_, false)) context_.hooks.abort_functions(false);
    if (on_idle) on_idle();
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
    flight->draws[index].sampled_status = flight->group.samples[index].status;
    if (events_.on_sampled) events_.on_sampled(*flight, index);
  }
  co_await ask_sample_hooks(flight, index);
  co_await score(flight, index);
  if (flight->num_open == 1) {  // no other coroutine looks at the samples any more
    flight->gather_parts();
    co_await end_group(flight);
  }
  if (--flight->num_open > 0) co_return;
  if (events_.on_done) events_.on_done(*flight);
}

engine::GenerateRequest Session::request_for(const GroupInFlight& flight,
                                             const Sample& sample) const {
  engine::GenerateRequest request;
  // Servers abort by prefix: no rid is the beginning of another one in flight.
  request.rid = fmt::format("{}-{}.{}", name_, sample.ordinal, flight.attempt);
  request.input_ids = sample.tokens;
  request.media = sample.media;
  request.num_sampled = sample.response_length();
  request.sampling = rules_.sampling;
  request.sampling.max_new_tokens = remaining_tokens(sample, rules_);
  request.sampling.sampling_seed =
      rules_.draws_by_prompt
          ? draw_key(rules_.seed, std::span(sample.tokens).first(sample.prompt_length),
                     sample.index_in_group)
          : draw_key(rules_.seed, sample.ordinal);
  request.return_logprob = true;
  request.return_free_logprobs = request.sampling.is_constrained();
  request.return_top_p_token_ids = rules_.keeps_top_p_ids;
  request.return_top_p_log_probs = rules_.keeps_top_p_log_probs;
  request.top_logprobs_num = rules_.topk_log_probs;
  request.return_routed_experts = rules_.keeps_routed_experts;
  // Those of earlier calls stay: they made the log-probs of these tokens.
  if (!sample.routed_experts.empty())
    request.routed_experts_start_len = static_cast<int64_t>(sample.tokens.size()) - 1;
  return request;
}

asio::awaitable<void> Session::draw(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  {
    const ConcurrencyLimit::Permit permit = co_await requests_.acquire();
    if (rules_.generate) {
      co_await draw_by_function(flight, index);
    } else {
      while (co_await draw_once(flight, index)) {
      }
      render(flight->group.samples[index]);
    }
  }
  --num_drawing_;
  tell_when_quiet();
}

asio::awaitable<void> Session::draw_by_function(std::shared_ptr<GroupInFlight> flight,
                                                std::size_t index) {
  Sample& sample = flight->group.samples[index];
  Draw& draw = flight->draws[index];
  if (is_closed_ || flight->is_aborted) {
    sample.status = Status::kAborted;
    co_return;
  }
  const std::stop_callback with_session(functions_stop_.get_token(),
                                        [&draw] { draw.call.request_stop(); });
  AskFn<MadeSamples> ask = [this, &sample](std::stop_token stop, AnswerFn<MadeSamples> answer) {
    rules_.generate({.sample = sample,
                     .sampling = rules_.sampling,
                     .keeps_top_p_ids = rules_.keeps_top_p_ids,
                     .keeps_top_p_log_probs = rules_.keeps_top_p_log_probs,
                     .topk_log_probs = rules_.topk_log_probs},
                    std::move(stop), std::move(answer));
  };
  ++num_functions_;
  auto sampled = co_await ask_elsewhere<MadeSamples>(std::move(ask), draw.call.get_token());
  --num_functions_;
  if (!sampled) {
    sample.status = Status::kAborted;
  } else if (!*sampled) {
    sample.status = Status::kFailed;
    sample.failure = "generate: " + sampled->error().message;
  } else {
    draw.is_list = (*sampled)->is_list;
    num_lost_tokens_ += (*sampled)->untrained_tokens;
    take_sampled(sample, draw, std::move((*sampled)->parts));
  }
}

void Session::take_sampled(Sample& sample, Draw& draw, std::vector<Sample> sampled) {
  check(!sampled.empty(), "a function makes one sample at least");
  num_tokens_of_functions_ += std::max<int64_t>(num_with_log_prob(sampled) - draw.tokens_before, 0);
  for (Sample& part : sampled) {
    if (part.reward.is_null() || !rules_.reward_problem) continue;
    const std::optional<std::string> problem = rules_.reward_problem(part.reward);
    if (!problem) continue;
    part.status = Status::kFailed;
    part.reward = nullptr;
    part.failure = "generate: its reward: " + *problem;
  }
  sample = std::move(sampled.front());
  sampled.erase(sampled.begin());
  draw.other_parts = std::move(sampled);
  if (sample.status == Status::kAborted && !is_closed_)
    draw.engine_gave_up = "its function returned it as aborted";
}

/// The session is closed. Those that do not return what they have in time are stopped.
void Session::end_functions() {
  const bool may_return = context_.config.keeps_partial && context_.hooks.abort_functions &&
                          !error_ && !functions_stop_.stop_requested();
  if (num_functions_ == 0 || !may_return) return stop_functions();
  has_told_functions_ = true;
  context_.hooks.abort_functions(true);
  using Timer = asio::steady_timer;
  patience_ = std::make_shared<Timer>(context_.runtime.context(), Timer::time_point::max());
  const auto patience = std::chrono::duration_cast<Clock::Duration>(context_.config.abort_patience);
  context_.runtime.wake_at(patience_, context_.runtime.now() + patience);
  patience_->async_wait([stop = functions_stop_, timer = std::weak_ptr(patience_)](
                            const boost::system::error_code&) mutable {
    if (!timer.expired()) stop.request_stop();
  });
}

/// True: it was interrupted, and is to go on.
asio::awaitable<bool> Session::draw_once(std::shared_ptr<GroupInFlight> flight, std::size_t index) {
  Sample& sample = flight->group.samples[index];
  Draw& draw = flight->draws[index];
  if (flight->is_aborted) {
    sample.status = Status::kAborted;
    co_return false;
  }
  OnSampled on_sampled = [this, flight, index](int64_t num_tokens) {
    Draw& draw = flight->draws[index];
    draw.num_sampled = num_tokens;
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
      co_await requests_.draw(std::move(make_request), draw.under_way, std::move(on_sampled));
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

void Session::tell_reached() {
  try {
    if (events_.on_reached) events_.on_reached();
  } catch (...) {
    fail(std::current_exception());
  }
}

}  // namespace slime::rollout
