#pragma once

/// Groups of one evaluation, generated and scored on the rollout's thread. Its
/// requests are its own: a step that opens, closes or waits beside it does not concern it.

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "core/sample.h"
#include "rollout/session.h"

namespace slime::rollout {

class EvalBatch {
 public:
  /// `on_end` is called once, after the promise has been kept; it may destroy the object.
  /// References outlive it.
  EvalBatch(const RolloutContext& context, std::string name, ResponseRules rules,
            const std::atomic<bool>& stop, std::function<void(const Group&)> on_group,
            std::promise<std::vector<Group>> finished, std::function<void()> on_end);

  // These throw nothing: what goes wrong is in the promise.

  void begin(std::vector<Group> groups);
  /// Ends it early when its stop flag is set.
  void look_at_stop_flag();
  void abandon();

 private:
  void done(GroupInFlight& flight);
  void idle();

  const RolloutHooks& hooks_;
  const std::atomic<bool>& stop_;
  const std::function<void(const Group&)> on_group_;  // may be empty
  std::promise<std::vector<Group>> promise_;
  const std::function<void()> on_end_;
  Session session_;
  std::vector<Group> finished_;
};

}  // namespace slime::rollout
