#pragma once

/// A step of training: which groups it starts, keeps, drops and hands back. All of it is decided in
/// the order of virtual time (docs/how/repeatable_rollout.md), on the rollout's thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/sample.h"
#include "rollout/group_order.h"
#include "rollout/session.h"
#include "rollout/step_record_queue.h"

namespace slime::rollout {

/// How often a group was handed back, by its ordinal; only those that may come again are in it.
using Attempts = std::unordered_map<int64_t, int64_t>;

/// One class because starting, keeping, dropping, replacing and handing back count the same groups,
/// and each of these decisions follows from the others.
class Step {
 public:
  /// `on_end` is called once, after the step's end has been put into the queue; it may destroy the
  /// step. References outlive it.
  Step(const RolloutContext& context, StepRecordQueue& queue, Attempts& attempts, StepOrder order,
       std::function<void()> on_end);

  // These throw nothing: what goes wrong is in the step's end.

  void begin();
  /// The queue may have room again.
  void go_on();
  /// Ends the step early when its stop flag is set.
  void look_at_stop_flag();
  /// The rollout ends: what is in flight is aborted, and nothing is handed back.
  void abandon();

  /// By the engine, so far.
  int64_t num_generated_tokens() const { return session_.num_generated_tokens(); }

 private:
  /// A group that is neither kept nor dropped.
  struct Open {
    std::shared_ptr<GroupInFlight> flight;
    int64_t first_number = 0;  // in virtual time, of its first sample
  };

  void refill();
  void begin_groups(int64_t count);
  void keep_places_taken();
  void forget_older(Group& group);
  void sampled(GroupInFlight& flight, std::size_t index);
  void advance();
  void judge(int64_t ordinal);
  void replace(const Open& given_up, std::size_t index);
  void drop(int64_t ordinal, const std::string& reason);
  void idle();
  void judge_what_is_there();
  void hand_back();
  int64_t cut_back(GroupInFlight& flight, int64_t first_number);
  void to_present_tick(Sample& sample, const Draw& draw, int64_t number);

  const RolloutConfig& config_;
  const RolloutHooks& hooks_;
  StepRecordQueue& records_;
  Attempts& attempts_;
  FirstFailures& first_failures_;
  const StopFlags stop_;
  const std::function<void()> on_end_;
  const bool has_functions_;  // of the user's, which draw
  Session session_;
  GroupOrder order_;
  StepEnd end_;
  std::map<int64_t, Open> open_;  // by ordinal of the group
  int64_t num_under_way_ = 0;     // groups started, and neither dropped nor given up
  int64_t num_kept_ = 0;
  bool data_ended_ = false;
  bool is_complete_ = false;   // there are as many groups as the step needs
  bool is_held_back_ = false;  // a group could be judged, but the queue is full
  bool is_abandoned_ = false;
};

}  // namespace slime::rollout
