#include "rollout/step.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/sampled_tokens.h"
#include "rollout/sample_growth.h"
#include "rollout/verdict.h"

namespace slime::rollout {

Step::Step(const RolloutContext& context, StepRecordQueue& queue, Attempts& attempts,
           StepOrder order, std::function<void()> on_end)
    : config_(context.config),
      hooks_(context.hooks),
      records_(queue),
      attempts_(attempts),
      first_failures_(context.first_failures),
      stop_(order.stop),
      on_end_(std::move(on_end)),
      has_functions_(order.rules.generate != nullptr),
      session_(context, std::move(order.rules), "rollout"),
      order_(has_functions_ ? GroupOrder::By::kCompletion : GroupOrder::By::kVirtualTime,
             context.config.num_slots) {
  end_.step = order.step;
  end_.version = order.version;
  session_.set_events(
      {.on_sampled = [this](GroupInFlight& flight, std::size_t index) { sampled(flight, index); },
       .on_done =
           [this](GroupInFlight& flight) {
             order_.done(flight.group.ordinal);
             advance();
           },
       .on_reached = [this] { advance(); },
       .on_idle = [this] { idle(); }});
}

void Step::begin() {
  try {
    refill();
    advance();  // groups that have nothing to draw may be there
    session_.begin();
  } catch (...) {
    session_.fail(std::current_exception());
  }
}

void Step::go_on() {
  if (!is_held_back_) return;
  try {
    advance();
  } catch (...) {
    session_.fail(std::current_exception());
  }
  session_.tell_when_idle();
}

void Step::look_at_stop_flag() {
  if (stop_.load()) session_.close();
}

void Step::abandon() {
  is_abandoned_ = true;
  session_.stop_functions();
  session_.close();
}

void Step::idle() {
  if (is_held_back_ && !session_.is_closed()) return;  // go_on() comes
  if (!is_abandoned_) {
    end_.error = session_.error();
    try {
      // Interrupted, or the data ended: what has finished counts, whenever it would have been
      // judged.
      if (!end_.error && !is_complete_) judge_what_is_there();
    } catch (...) {
      end_.error = std::current_exception();
    }
    try {
      hand_back();  // also what a step with an error had begun: a checkpoint may follow
    } catch (...) {
      if (!end_.error) end_.error = std::current_exception();
    }
    end_.generated_tokens = session_.num_generated_tokens();
    end_.lost_tokens = session_.num_lost_tokens();
    records_.put(std::move(end_));
  }
  const std::function<void()> on_end = on_end_;  // the call may destroy this object
  on_end();
}

void Step::refill() {
  while (num_under_way_ < config_.groups_per_step && !data_ended_ && !session_.is_closed())
    begin_groups(config_.groups_per_refill);
}

void Step::begin_groups(int64_t count) {
  std::vector<Group> groups = hooks_.prompts->take(count);
  data_ended_ = groups.empty();
  num_under_way_ += static_cast<int64_t>(groups.size());
  for (Group& group : groups) {
    const int64_t ordinal = group.ordinal;
    if (!config_.keeps_partial && !hooks_.prompts->is_replayed(group)) forget_older(group);
    const auto known = attempts_.find(ordinal);
    std::shared_ptr<GroupInFlight> flight =
        session_.start(std::move(group), known == attempts_.end() ? 0 : known->second);
    const int64_t first = order_.join(*flight);
    const bool is_new = open_.emplace(ordinal, Open{std::move(flight), first}).second;
    check(is_new, "a group is in flight once");
  }
}

void Step::keep_places_taken() {
  if (!config_.refills_at_once || data_ended_ || session_.is_closed()) return;
  const int64_t missing = config_.groups_per_refill - static_cast<int64_t>(open_.size());
  if (missing > 0) begin_groups(missing);
}

void Step::sampled(GroupInFlight& flight, std::size_t index) {
  const auto open = open_.find(flight.group.ordinal);
  check(open != open_.end(), "a group in flight is open");
  const Sample& sample = flight.group.samples[index];
  order_.ended(open->second.first_number + static_cast<int64_t>(index),
               sample.response_length() - flight.draws[index].tokens_before);
  advance();
}

/// What another mode of training began, before a restart: here all tokens are of one version.
void Step::forget_older(Group& group) {
  tell_discarded(hooks_.prompts, group.ordinal, num_sampled_tokens(group));
  end_.discarded_tokens += forget_response(group);
}

/// Judges groups in the order of virtual time, as far as tokens and rewards are known and the
/// queue has room.
void Step::advance() {
  while (!session_.is_closed()) {
    is_held_back_ = !records_.has_room();
    if (is_held_back_) return;
    const std::optional<int64_t> ordinal = order_.front();
    if (!ordinal) return;
    if (open_.at(*ordinal).flight->num_open > 0) return;  // its rewards are to come
    order_.pop();
    judge(*ordinal);
  }
}

void Step::judge(int64_t ordinal) {
  GroupInFlight& flight = *open_.at(ordinal).flight;
  Group& group = flight.group;
  first_failures_.see(group);
  const Verdict verdict =
      verdict_on(group, flight.filtered, hooks_.filter, num_under_way_, config_.groups_per_step);
  if (verdict.kind == Verdict::Kind::kGivenUp) return replace(open_.at(ordinal), verdict.index);
  if (verdict.kind == Verdict::Kind::kDrop) {
    if (verdict.reason == "failed") {
      const Sample& sample = group.samples[verdict.index];
      count_failure(end_, config_, num_kept_, sample, sample.failure);
    }
    return drop(ordinal, verdict.reason);
  }
  Group kept = std::move(group);
  std::ranges::stable_sort(kept.samples, {}, &Sample::ordinal);  // parts beside one another
  open_.erase(ordinal);
  attempts_.erase(ordinal);
  records_.put(std::move(kept));
  ++num_kept_;
  if (hooks_.on_progress) hooks_.on_progress(num_kept_, session_.num_generated_tokens());
  if (num_kept_ < config_.groups_per_step) return keep_places_taken();
  is_complete_ = true;
  session_.close();
}

/// The engine ended a sample of the group that nobody had asked it to end. The group stays open, to
/// be handed back with the others; a refill in its place never takes it again, so an engine that
/// refuses it is not asked over and over.
void Step::replace(const Open& given_up, std::size_t index) {
  look_at_stop_flag();  // an engine may end before the step does
  if (session_.is_closed()) return;
  count_failure(end_, config_, num_kept_, given_up.flight->group.samples[index],
                given_up.flight->why_given_up(index));
  --num_under_way_;
  refill();
}

void Step::drop(int64_t ordinal, const std::string& reason) {
  const std::shared_ptr<GroupInFlight> flight = open_.at(ordinal).flight;
  hooks_.prompts->dropped(flight->group, reason);  // may throw: it is given back
  open_.erase(ordinal);
  attempts_.erase(ordinal);
  --num_under_way_;
  count_drop(end_, config_, num_kept_, reason);
  refill();
  keep_places_taken();
}

void Step::judge_what_is_there() {
  std::vector<int64_t> ordinals;
  for (const auto& [ordinal, open] : open_) {
    const std::vector<Sample>& samples = open.flight->group.samples;
    const auto is_any = [&samples](Status status) {
      return std::ranges::find(samples, status, &Sample::status) != samples.end();
    };
    const bool is_scored =
        !hooks_.scorer.gives_rewards() ||
        std::ranges::none_of(samples, [](const Sample& sample) { return sample.reward.is_null(); });
    const bool is_filtered =
        !std::holds_alternative<AskFilterFn>(hooks_.filter) || open.flight->filtered;
    if (open.flight->num_open > 0 || is_any(Status::kAborted)) continue;
    if (is_any(Status::kFailed) || (is_scored && is_filtered)) ordinals.push_back(ordinal);
  }
  for (const int64_t ordinal : ordinals) {
    if (!is_complete_) judge(ordinal);
  }
}

void Step::hand_back() {
  std::vector<Group> groups;
  for (auto& [ordinal, open] : open_) {
    const int64_t sampled = num_sampled_tokens(open.flight->group);
    Group group;
    if (has_functions_) {
      group = open.flight->to_hand_back(config_.keeps_partial);
      end_.discarded_tokens += sampled - num_sampled_tokens(group);
    } else {
      end_.discarded_tokens += cut_back(*open.flight, open.first_number);
      group = std::move(open.flight->group);
    }
    tell_discarded(hooks_.prompts, ordinal, sampled - num_sampled_tokens(group));
    ++attempts_[ordinal];
    groups.push_back(std::move(group));
  }
  if (!groups.empty()) hooks_.prompts->give_back(std::move(groups));
}

/// Its group as it was in the tick in which the step closed, and without new tokens where none are
/// kept. Returns how many new tokens that takes.
int64_t Step::cut_back(GroupInFlight& flight, int64_t first_number) {
  if (hooks_.prompts->is_replayed(flight.group)) return 0;
  int64_t num_taken = 0;
  for (std::size_t i = 0; i < flight.draws.size(); ++i) {
    Sample& sample = flight.group.samples[i];
    const Draw& draw = flight.draws[i];
    const int64_t length = sample.response_length();
    if (is_complete_) to_present_tick(sample, draw, first_number + static_cast<int64_t>(i));
    num_taken += length - (config_.keeps_partial ? sample.response_length() : draw.tokens_before);
  }
  if (!config_.keeps_partial) forget_response(flight.group);
  return num_taken;
}

/// The sample as it was in the tick in which the step closed, however far it really came.
void Step::to_present_tick(Sample& sample, const Draw& draw, int64_t number) {
  const VirtualTime& time = *order_.time();
  if (time.has_ended(number)) {
    // A reward that failed is asked for again: whether it already had is a matter of time.
    if (sample.status == Status::kFailed && draw.sampled_status != Status::kFailed) {
      sample.status = draw.sampled_status;
      sample.failure.clear();
    }
    return;
  }
  const int64_t length = draw.tokens_before + time.num_sampled(number);
  const bool is_shortened = length < sample.response_length();
  cut_response(sample, std::min(length, sample.response_length()));
  if (is_shortened) {
    sample.response = hooks_.detokenize(
        std::span(sample.tokens).subspan(static_cast<std::size_t>(sample.prompt_length)));
  }
}

}  // namespace slime::rollout
