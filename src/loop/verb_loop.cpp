#include "loop/verb_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"

namespace slime::loop {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// How often the loop looks whether it was interrupted.
constexpr milliseconds kLook{100};
/// Without a verb for so long the last step's row is written.
constexpr milliseconds kIdle{1'000};

/// A verb that is out of order: nothing was done.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& why) {
  if (!holds) throw Refused(why);
}

std::optional<int64_t> step_of(const Verb& verb, const char* field) {
  return FieldReader(verb.arguments, verb.name + ": ").integer(field, 0);
}

json::object to_json(const report::Metrics& metrics) {
  json::object object;
  for (const auto& [name, value] : metrics) object[name] = value;
  return object;
}

}  // namespace

VerbLoop::VerbLoop(Steps& steps, const setup::RunSchedule& schedule, VerbRules rules,
                   VerbQueue& queue, VerbHooks hooks)
    : steps_(steps),
      schedule_(schedule),
      rules_(rules),
      queue_(queue),
      hooks_(std::move(hooks)),
      last_end_(steady_clock::now()) {
  now_.next = schedule.first_step;
  now_.done = now_.saved = schedule.first_step - 1;
  if (rules.generates) first_version_ = steps.version();
  now_.version = first_version_;
  hooks_.new_metrics();
  show();
}

void VerbLoop::show() {
  const std::lock_guard lock(mutex_);
  shown_state_ = now_;
  shown_state_.in_hand = has_in_hand();
  if (rollout_) shown_[rollout_->step] = rollout_->collected;
  while (shown_.size() > 2) shown_.erase(shown_.begin());
}

VerbState VerbLoop::state() const {
  const std::lock_guard lock(mutex_);
  return shown_state_;
}

ShownRollout VerbLoop::rollout(int64_t step) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = shown_.find(step); found != shown_.end()) return found->second;
  throw ConfigError(
      step >= shown_state_.next
          ? fmt::format("rollout {}: is not generated yet", step)
          : fmt::format("rollout {}: only the last two rollouts are in memory; older ones are in "
                        "the run's folder, rollouts/",
                        step));
}

std::optional<std::size_t> VerbLoop::choose(const std::deque<Verb>& waiting) const {
  std::optional<std::size_t> held;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const Verb& verb = waiting[i];
    if (verb.name != "generate" || !rules_.is_stream || !has_stream_) return i;
    if (verb.is_awaited && !has_in_hand()) return i;
    if (verb.is_awaited && !held) held = i;
  }
  // Its rollout is in hand, and nobody asks for what would change that.
  const bool is_late = steady_clock::now() - last_end_ > rules_.patience;
  return is_late ? held : std::nullopt;
}

void VerbLoop::run() {
  try {
    do_verbs();
  } catch (...) {
    give_back();
    throw;
  }
}

void VerbLoop::give_back() {
  if (has_in_hand()) steps_.abandon(rollout_->collected->groups);
}

void VerbLoop::do_verbs() {
  while (!closing_ && !steps_.is_interrupted()) {
    const auto verb =
        queue_.next([this](const std::deque<Verb>& waiting) { return choose(waiting); }, kLook);
    if (!verb) {
      if (steady_clock::now() - last_end_ > kIdle) record();
      continue;
    }
    VerbAnswer answer;
    try {
      answer = perform(*verb);
    } catch (const Refused& refused) {
      answer = VerbError{.message = refused.what(), .is_refusal = true};
    }
    last_end_ = steady_clock::now();
    show();
    if (!closing_) queue_.answer(verb->number, std::move(answer));
  }
  record();
  give_back();
  steps_.finish(now_.done + 1);
  if (closing_) queue_.answer(*closing_, json::object{{"step", now_.done}});
}

json::object VerbLoop::perform(const Verb& verb) {
  if (verb.name == "generate") return generate(verb);
  if (verb.name == "train") return train(verb);
  if (verb.name == "drop") return drop(verb);
  if (verb.name == "update_weights") return update_weights();
  if (verb.name == "evaluate") return evaluate(verb);
  if (verb.name == "save") return save(verb);
  if (verb.name == "settle") {
    record();
    return {{"step", now_.done}};
  }
  check(verb.name == "close", "the door knows the verbs");
  closing_ = verb.number;
  return {};
}

void VerbLoop::record() {
  if (!rollout_ || !rollout_->is_done || rollout_->is_recorded) return;
  rollout_->is_recorded = true;
  steps_.end_step(rollout_->step, *rollout_->collected,
                  rollout_->report ? &*rollout_->report : nullptr);
}

void VerbLoop::require_weights(std::string_view verb) const {
  require(!rules_.shares_weights || now_.behind == 0,
          fmt::format("{}: rollout {} is trained, and the engines read the trainer's weights "
                      "(--share-weights), so the older ones are gone; call update_weights() first",
                      verb, now_.done));
}

/// A stream holds back groups of step `step` until the engines have weights that are close enough.
void VerbLoop::require_close_weights(int64_t step) const {
  if (!rules_.is_stream || !rules_.max_lag) return;
  const WeightVersion due =
      first_version_ + (step - schedule_.first_step) / schedule_.steps_per_update;
  require(now_.version >= due - *rules_.max_lag,
          fmt::format("generate({}): the engines have weights {}, and --max-staleness {} wants {} "
                      "or newer; call update_weights() first",
                      step, now_.version, *rules_.max_lag, due - *rules_.max_lag));
}

json::object VerbLoop::generate(const Verb& verb) {
  const int64_t step = step_of(verb, "step").value_or(now_.next);
  require(step < schedule_.num_steps,
          fmt::format("generate({}): the run has {} rollouts (--num-rollout); the last one is {}",
                      step, schedule_.num_steps, schedule_.num_steps - 1));
  require(step >= now_.next,
          fmt::format("generate({}): rollout {} was generated already; the next one is {}", step,
                      step, now_.next));
  require(step == now_.next, fmt::format("generate({}): the next rollout is {}{}", step, now_.next,
                                         now_.next == schedule_.first_step && now_.next > 0
                                             ? ", behind the checkpoint (run.steps has them)"
                                             : ""));
  require(!has_in_hand(),
          fmt::format(
              "generate({}): rollout {} is neither trained nor dropped{}", step, now_.next - 1,
              rules_.is_stream ? ", and nobody asks for that"
                               : "; to generate beside training start the run with --train-async"));
  require_weights("generate");
  require_close_weights(step);
  record();
  if (rules_.is_stream && !has_stream_) {
    has_stream_ = true;
    steps_.start_stream(first_version_);
  }
  auto collected = std::make_shared<report::Collected>(steps_.collect(step));
  if (now_.behind > 0 && !has_told_) {
    has_told_ = true;
    hooks_.tell(fmt::format(
        "rollout {} was sampled with weights that lack {} trained step{}: training is off-policy "
        "until update_weights() (rollout/weight_version/behind_trainer)",
        step, now_.behind, now_.behind == 1 ? "" : "s"));
  }
  int64_t num_samples = 0;
  for (const Group& group : collected->groups)
    num_samples += static_cast<int64_t>(group.samples.size());
  json::object answer{{"step", step},
                      {"num_groups", collected->groups.size()},
                      {"num_samples", num_samples},
                      {"reward", hooks_.reward_of(*collected)},
                      {"seconds", collected->seconds},
                      {"metrics", to_json(collected->metrics)}};
  rollout_ = {.step = step, .collected = std::move(collected), .report = {}};
  rollout_->is_done = !rules_.trains;
  if (rollout_->is_done) now_.done = step;
  now_.next = step + 1;
  return answer;
}

VerbLoop::Rollout& VerbLoop::in_hand(const Verb& verb) {
  require(rules_.trains,
          fmt::format("{}: --debug-rollout-only generates, and trains nothing", verb.name));
  const int64_t step = step_of(verb, "step").value_or(now_.next - 1);
  require(rollout_.has_value(), fmt::format("{}: no rollout is generated yet", verb.name));
  require(step < now_.next,
          fmt::format("{}(rollout {}): it is not generated yet; the last one is {}", verb.name,
                      step, now_.next - 1));
  const bool was_dropped = dropped_.contains(step);
  require(step == rollout_->step && !rollout_->is_done,
          fmt::format("{}(rollout {}): it was {} already", verb.name, step,
                      was_dropped ? "dropped" : "trained"));
  return *rollout_;
}

json::object VerbLoop::train(const Verb& verb) {
  Rollout& rollout = in_hand(verb);
  rollout.is_done = true;  // also where it fails, which gives the groups back
  rollout.report = steps_.train_on(rollout.collected->groups);
  now_.done = rollout.step;
  ++now_.behind;
  json::object metrics = to_json(rollout.report->rollout);
  for (const auto& [name, value] : rollout.report->perf) metrics[name] = value;
  json::array updates;
  for (const train::StepReport& update : rollout.report->steps) {
    json::object own = to_json(update.metrics);
    own["train/step"] = update.step;
    for (const auto& each : own) metrics[each.key()] = each.value();
    if (!update.skipped.empty()) own["skipped"] = update.skipped;
    updates.push_back(std::move(own));
  }
  return {{"step", rollout.step}, {"metrics", std::move(metrics)}, {"updates", std::move(updates)}};
}

json::object VerbLoop::drop(const Verb& verb) {
  Rollout& rollout = in_hand(verb);
  steps_.skip(rollout.collected->groups);
  rollout.is_done = true;
  now_.done = rollout.step;
  dropped_.insert(rollout.step);
  record();
  return {{"step", rollout.step}};
}

json::object VerbLoop::update_weights() {
  require(rules_.trains, "update_weights: --debug-rollout-only trains nothing");
  require(now_.behind > 0,
          now_.done < schedule_.first_step
              ? std::string("update_weights: nothing is trained yet")
              : fmt::format("update_weights: the engines have the weights of rollout {} already",
                            now_.done));
  require(!rules_.is_stream || schedule_.publishes_after(now_.done),
          fmt::format("update_weights: the engines' stream counts on an update every {} rollouts "
                      "(--update-weights-interval), and rollout {} is between two of them",
                      schedule_.steps_per_update, now_.done));
  const WeightVersion version = rules_.is_stream ? now_.version + 1 : now_.done + 1;
  steps_.publish(version);
  now_.version = version;
  now_.behind = 0;
  return {{"version", version}, {"step", now_.done}};
}

json::object VerbLoop::evaluate(const Verb& verb) {
  require(rules_.evaluates,
          "evaluate: this run has nothing to evaluate on; start it with --eval-interval and "
          "--eval-prompt-data NAME FILE (or --eval-config, --eval-function-path)");
  const int64_t step = step_of(verb, "step").value_or(std::max<int64_t>(now_.done, 0));
  const bool is_before = now_.done < schedule_.first_step;
  require(step == now_.done || (is_before && step <= std::max<int64_t>(now_.done, 0)),
          fmt::format("evaluate({}): the weights are those behind rollout {}", step, now_.done));
  require_weights("evaluate");
  record();
  hooks_.new_metrics();
  steps_.evaluate(now_.done);
  return {{"step", now_.done}, {"metrics", hooks_.new_metrics()}};
}

json::object VerbLoop::save(const Verb& verb) {
  require(rules_.trains, "save: --debug-rollout-only trains nothing");
  const int64_t step = step_of(verb, "step").value_or(std::max<int64_t>(now_.done, 0));
  require(now_.done >= schedule_.first_step || now_.saved >= 0, "save: nothing is trained yet");
  require(step == now_.done,
          fmt::format("save({}): the weights are those behind rollout {}", step, now_.done));
  require(step > now_.saved,
          fmt::format("save({}): the checkpoint of rollout {} is there already", step, step));
  require(!has_in_hand() || rules_.can_go_back,
          fmt::format("save({}): rollout {} is generated, and neither trained nor dropped; the "
                      "prompts of this run cannot go back behind it",
                      step, now_.next - 1));
  record();
  steps_.save(step);
  now_.saved = step;
  return {{"step", step}, {"path", hooks_.checkpoint_of(step)}};
}

}  // namespace slime::loop
