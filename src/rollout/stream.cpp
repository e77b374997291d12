#include "rollout/stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/sampled_tokens.h"
#include "rollout/older_tokens.h"
#include "rollout/verdict.h"

namespace slime::rollout {

namespace {

/// The same prompt gives the same long response again: after so many it is dropped.
constexpr int64_t kMaxAttempts = 3;

/// Before groups that the engine gave up are begun again and nothing else is to be done: an engine
/// that comes back takes a while.
constexpr std::chrono::seconds kPause{1};

bool has_ended(const Group& group) {
  return std::ranges::none_of(group.samples, [](const Sample& sample) {
    return sample.status == Status::kPending || sample.status == Status::kAborted;
  });
}

}  // namespace

Stream::Stream(const RolloutContext& context, StepRecordQueue& queue, Attempts& attempts,
               StreamOrder order, std::function<void()> on_end)
    : runtime_(context.runtime),
      config_(context.config),
      hooks_(context.hooks),
      records_(queue),
      attempts_(attempts),
      first_failures_(context.first_failures),
      order_(std::move(order)),
      on_end_(std::move(on_end)),
      session_(context, order_.rules, "rollout"),
      version_(order_.staleness.first_version) {
  end_.step = order_.staleness.first_step;
  end_.version = version_;
  session_.set_events({.on_sampled = nullptr,
                       .on_done = [this](GroupInFlight& flight) { done(flight); },
                       .on_reached = nullptr,
                       .on_idle = [this] { idle(); }});
}

void Stream::begin() {
  try {
    admit();
    session_.begin(/*as_one_batch=*/false);
  } catch (...) {
    session_.fail(std::current_exception());
  }
}

void Stream::go_on() {
  try {
    advance();
  } catch (...) {
    session_.fail(std::current_exception());
  }
}

void Stream::look_at_stop_flag() {
  if (order_.stop.load()) session_.close();
}

void Stream::abandon() {
  is_abandoned_ = true;
  session_.stop_functions();
  session_.close();
}

void Stream::hold(bool interrupts, std::function<void()> on_quiet) {
  is_held_ = true;
  tell(HeldBy::kUpdate);
  if (interrupts) {
    session_.interrupt(std::move(on_quiet));
  } else {
    session_.drain(std::move(on_quiet));
  }
}

void Stream::release(WeightVersion version) {
  version_ = version;
  is_held_ = false;
  session_.release();
  go_on();
}

Snapshot Stream::snapshot() const {
  Snapshot now{.open_groups = given_up_, .generated_tokens = num_generated_tokens()};
  for (const auto& [number, open] : open_) {
    Group group = session_.as_it_is(*open.flight);
    now.generated_tokens += num_sampled_tokens(group) - num_sampled_tokens(open.flight->group);
    now.open_groups.push_back(std::move(group));
  }
  return now;
}

/// Groups that are trained before one that is begun now.
int64_t Stream::num_ahead() const {
  return num_kept_ + static_cast<int64_t>(open_.size() + given_up_.size());
}

/// The one that the next kept group belongs to.
int64_t Stream::step() const { return order_.staleness.step_behind(num_kept_); }

bool Stream::may_begin() const {
  const auto num_open = static_cast<int64_t>(open_.size() + given_up_.size());
  if (config_.max_open_groups > 0 && num_open >= config_.max_open_groups) return false;
  return !session_.is_closed() && !is_held_ && !is_held_back_ && !data_ended_ &&
         order_.staleness.step_behind(num_ahead()) < order_.num_steps &&
         order_.staleness.may_begin(num_ahead(), version_);
}

void Stream::admit() {
  while (may_begin()) {
    std::vector<Group> groups = hooks_.prompts->take(1);
    data_ended_ = groups.empty();
    for (Group& group : groups) {
      if (config_.redraws_unended_groups && !has_ended(group)) {
        tell_discarded(hooks_.prompts, group.ordinal, num_sampled_tokens(group));
        end_.discarded_tokens += forget_response(group);
      }
      // `slime train --partial-rollout` began it, if it has tokens.
      if (hooks_.prompts->is_replayed(group)) group.begun_with = version_;  // whatever drew it
      if (!group.begun_with)
        group.begun_with = std::min(oldest_version(group).value_or(version_), version_);
      const auto known = attempts_.find(group.ordinal);
      const int64_t attempt = known == attempts_.end() ? 0 : known->second;
      open_.emplace(num_begun_++, Open{session_.start(std::move(group), attempt)});
    }
  }
  if (session_.is_closed() || !open_.empty()) return;
  if (!given_up_.empty()) return begin_given_up_later();
  if (!data_ended_) return;
  end_.is_last = true;
  end_step();  // with fewer groups than it should have
  is_complete_ = true;
  session_.close();
}

void Stream::done(const GroupInFlight& flight) {
  if (order_.order == ConsumptionOrder::kFinish) {
    const auto found = std::ranges::find_if(
        open_, [&](const auto& entry) { return entry.second.flight.get() == &flight; });
    check(found != open_.end(), "a group in flight is open");
    finished_.push_back(found->first);
  }
  advance();
}

/// Judges what can be judged, as far as the queue has room, and begins what may begin then.
void Stream::advance() {
  while (!session_.is_closed()) {
    is_held_back_ = !records_.has_room();
    if (is_held_back_) break;
    const auto next = next_to_judge();
    if (next == open_.end()) break;
    judge_one(next);
  }
  admit();
  tell(is_held_                                 ? HeldBy::kUpdate
       : is_held_back_ && !session_.is_closed() ? HeldBy::kFullQueue
                                                : HeldBy::kNothing);
}

void Stream::tell(HeldBy what) const {
  if (hooks_.on_stream) hooks_.on_stream(what, static_cast<int64_t>(open_.size()));
}

/// Its last step, and its number: of two groups with one last step the older goes first.
Stream::Deadline Stream::deadline(OpenGroups::const_iterator open) const {
  return {order_.staleness.last_step_for(*open->second.flight->group.begun_with), open->first};
}

/// Whether all open groups can be trained in time when this one is trained next: the groups that
/// have to be trained until any step fit into what is left until then.
bool Stream::leaves_time_for_others(int64_t number) const {
  std::vector<int64_t> last_steps;
  for (auto open = open_.begin(); open != open_.end(); ++open) {
    if (open->first != number) last_steps.push_back(deadline(open).last_step);
  }
  std::ranges::sort(last_steps);
  int64_t position = num_kept_ + 1;
  return std::ranges::all_of(last_steps, [&](int64_t last_step) {
    return order_.staleness.step_behind(position++) <= last_step;
  });
}

Stream::OpenGroups::iterator Stream::next_to_judge() {
  if (order_.order == ConsumptionOrder::kDispatch) {
    const auto first = open_.begin();
    return first != open_.end() && first->second.flight->num_open == 0 ? first : open_.end();
  }
  auto chosen = finished_.begin();
  if (order_.staleness.policy != StalePolicy::kCorrect) {
    chosen = std::ranges::find_if(
        finished_, [this](int64_t number) { return leaves_time_for_others(number); });
    if (chosen == finished_.end() && finished_.size() == open_.size()) {
      // Too late for some of them, and nobody is left to wait for.
      chosen = std::ranges::min_element(
          finished_, {}, [this](int64_t number) { return deadline(open_.find(number)); });
    } else if (chosen == finished_.end() && !finished_.empty() &&
               order_.staleness.policy != StalePolicy::kWait) {
      abort_most_urgent();
      return open_.end();
    }
  }
  if (chosen == finished_.end()) return open_.end();
  const auto found = open_.find(*chosen);
  finished_.erase(chosen);
  return found;
}

/// The unfinished group that the others would have to wait for.
void Stream::abort_most_urgent() {
  auto urgent = open_.end();
  for (auto open = open_.begin(); open != open_.end(); ++open) {
    if (open->second.flight->num_open == 0) continue;
    if (open->second.is_too_old) return;  // it is on its way back
    if (urgent == open_.end() || deadline(open) < deadline(urgent)) urgent = open;
  }
  if (urgent == open_.end()) return;
  urgent->second.is_too_old = true;
  session_.abort(*urgent->second.flight);
}

void Stream::judge_one(OpenGroups::iterator which) {
  const Group& group = which->second.flight->group;
  const bool is_over = order_.staleness.lag(step(), *group.begun_with) > order_.staleness.max_lag &&
                       order_.staleness.policy != StalePolicy::kCorrect;
  if (which->second.is_too_old || is_over) {
    const auto attempts = attempts_.find(group.ordinal);
    const bool is_tried_enough = attempts != attempts_.end() && attempts->second >= kMaxAttempts;
    if (order_.staleness.policy == StalePolicy::kDrop || is_tried_enough)
      return drop(which, "stale");
    return retry(which);
  }
  first_failures_.see(group);
  const int64_t remaining =
      num_kept_ % config_.groups_per_step + static_cast<int64_t>(open_.size());
  const Verdict verdict = verdict_on(group, which->second.flight->filtered, hooks_.filter,
                                     remaining, config_.groups_per_step);
  switch (verdict.kind) {
    case Verdict::Kind::kKeep:
      return keep(which);
    case Verdict::Kind::kGivenUp:
      return give_up(which, verdict.index);
    case Verdict::Kind::kDrop:
      if (verdict.reason == "failed") {
        const Sample& sample = group.samples[verdict.index];
        count_failure(end_, config_, num_kept_ % config_.groups_per_step, sample, sample.failure);
      }
      return drop(which, verdict.reason);
  }
}

void Stream::keep(OpenGroups::iterator which) {
  Group kept = std::move(which->second.flight->group);
  std::ranges::stable_sort(kept.samples, {}, &Sample::ordinal);  // parts beside one another
  open_.erase(which);
  attempts_.erase(kept.ordinal);
  records_.put(std::move(kept));
  ++num_kept_;
  const int64_t in_step = num_kept_ % config_.groups_per_step;
  if (hooks_.on_progress) {
    hooks_.on_progress(in_step == 0 ? config_.groups_per_step : in_step,
                       session_.num_generated_tokens() - tokens_before_step_);
  }
  if (in_step > 0) return;
  end_step();
  if (step() < order_.num_steps) return;
  is_complete_ = true;
  session_.close();
}

void Stream::count_dropped(const Group& group) {
  end_.num_dropped_samples += static_cast<int64_t>(group.samples.size());
  end_.dropped_sample_tokens += num_sampled_tokens(group);
}

void Stream::drop(OpenGroups::iterator which, const std::string& reason) {
  const std::shared_ptr<GroupInFlight> flight = which->second.flight;
  count_dropped(flight->group);
  hooks_.prompts->dropped(flight->group, reason);  // may throw: it is given back
  open_.erase(which);
  attempts_.erase(flight->group.ordinal);
  count_drop(end_, config_, num_kept_ % config_.groups_per_step, reason);
}

/// Sampled again from the prompt, as the youngest of all.
void Stream::retry(OpenGroups::iterator which) {
  const std::shared_ptr<GroupInFlight> flight = which->second.flight;
  open_.erase(which);
  const int64_t sampled = num_sampled_tokens(flight->group);
  count_dropped(flight->group);
  Group group = flight->to_hand_back(/*keeps_tokens=*/false);
  tell_discarded(hooks_.prompts, group.ordinal, sampled);
  end_.discarded_tokens += flight->begun ? sampled : forget_response(group);
  ++attempts_[group.ordinal];
  ++end_.num_retried_groups;
  give_back({std::move(group)});
}

/// The engine ended a sample that nobody had asked it to end. The group comes again in a later
/// step, so an engine that refuses it is not asked over and over.
void Stream::give_up(OpenGroups::iterator which, std::size_t index) {
  look_at_stop_flag();  // an engine may end before the run does
  if (session_.is_closed()) return;
  const std::shared_ptr<GroupInFlight> flight = which->second.flight;
  open_.erase(which);
  ++attempts_[flight->group.ordinal];
  const Sample sample = flight->group.samples[index];
  const int64_t sampled = num_sampled_tokens(flight->group);
  given_up_.push_back(flight->to_hand_back(config_.keeps_partial));
  const int64_t discarded = sampled - num_sampled_tokens(given_up_.back());
  tell_discarded(hooks_.prompts, given_up_.back().ordinal, discarded);
  end_.discarded_tokens += discarded;
  count_failure(end_, config_, num_kept_ % config_.groups_per_step, sample,
                flight->why_given_up(index));
}

/// They count among those that are trained before what might be begun, so the step may have nothing
/// else to wait for.
void Stream::begin_given_up_later() {
  if (pause_) return;
  using Timer = boost::asio::steady_timer;
  pause_ = std::make_shared<Timer>(runtime_.context(), Timer::time_point::max());
  runtime_.wake_at(pause_, runtime_.now() + kPause);
  // The stream may be gone, and its timer with it.
  pause_->async_wait([this, timer = std::weak_ptr(pause_)](const boost::system::error_code&) {
    if (timer.expired()) return;
    pause_.reset();
    try {
      if (session_.is_closed()) return;
      if (!given_up_.empty()) give_back(std::exchange(given_up_, {}));
      advance();
    } catch (...) {
      session_.fail(std::current_exception());
    }
  });
}

/// To be begun again: also where the data had ended, they are there.
void Stream::give_back(std::vector<Group> groups) {
  hooks_.prompts->give_back(std::move(groups));
  data_ended_ = false;
}

void Stream::end_step() {
  const int64_t generated = session_.num_generated_tokens();
  end_.generated_tokens = generated - std::exchange(tokens_before_step_, generated);
  const int64_t lost = session_.num_lost_tokens();
  end_.lost_tokens = lost - std::exchange(lost_before_step_, lost);
  const int64_t next = end_.step + 1;
  // Behind the last record of a stream the buffer is the loop's.
  if (!given_up_.empty()) give_back(std::exchange(given_up_, {}));
  records_.put(std::exchange(end_, {.step = next, .version = version_}));
}

void Stream::hand_back() {
  std::vector<Group> groups = std::exchange(given_up_, {});
  for (auto& [number, open] : open_) {
    ++attempts_[open.flight->group.ordinal];
    groups.push_back(std::move(open.flight->group));
  }
  open_.clear();
  if (!groups.empty()) hooks_.prompts->give_back(std::move(groups));
}

void Stream::idle() {
  if (!session_.is_closed()) return;  // all that may run has ended: the loop's turn
  if (!is_abandoned_) {
    end_.error = session_.error();
    try {
      hand_back();
    } catch (...) {
      if (!end_.error) end_.error = std::current_exception();
    }
    end_.is_last = true;
    if (!is_complete_) end_step();
  }
  const std::function<void()> on_end = on_end_;  // the call may destroy this object
  on_end();
}

}  // namespace slime::rollout
