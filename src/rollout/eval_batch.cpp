#include "rollout/eval_batch.h"

#include <algorithm>
#include <utility>

namespace slime::rollout {

EvalBatch::EvalBatch(const RolloutContext& context, std::string name, ResponseRules rules,
                     const std::atomic<bool>& stop, std::function<void(const Group&)> on_group,
                     std::promise<std::vector<Group>> finished, std::function<void()> on_end)
    : hooks_(context.hooks),
      stop_(stop),
      on_group_(std::move(on_group)),
      promise_(std::move(finished)),
      on_end_(std::move(on_end)),
      session_(context, std::move(rules), std::move(name)) {
  session_.set_events({.on_sampled = nullptr,
                       .on_done = [this](GroupInFlight& flight) { done(flight); },
                       .on_reached = nullptr,
                       .on_idle = [this] { idle(); }});
}

void EvalBatch::begin(std::vector<Group> groups) {
  try {
    for (Group& group : groups) session_.start(std::move(group));
    session_.begin();
  } catch (...) {
    session_.fail(std::current_exception());
  }
}

void EvalBatch::look_at_stop_flag() {
  if (stop_.load()) abandon();
}

void EvalBatch::abandon() {
  session_.stop_functions();
  session_.close();
}

void EvalBatch::done(GroupInFlight& flight) {
  for (std::size_t i = 0; i < flight.draws.size() && !stop_.load(); ++i) {
    Sample& sample = flight.group.samples[i];
    if (sample.status != Status::kAborted || !flight.draws[i].engine_gave_up) continue;
    sample.status = Status::kFailed;
    sample.failure = *flight.draws[i].engine_gave_up;
  }
  if (on_group_ && !stop_.load() && !session_.error()) {
    try {
      on_group_(flight.group);
    } catch (...) {
      session_.fail(std::current_exception());
    }
  }
  finished_.push_back(std::move(flight.group));
  if (hooks_.on_progress) {
    hooks_.on_progress(static_cast<int64_t>(finished_.size()), session_.num_generated_tokens());
  }
}

void EvalBatch::idle() {
  if (session_.error()) {
    promise_.set_exception(session_.error());
  } else {
    std::ranges::sort(finished_, {}, &Group::ordinal);
    promise_.set_value(std::move(finished_));
  }
  const std::function<void()> on_end = on_end_;  // the call may destroy this object
  on_end();
}

}  // namespace slime::rollout
