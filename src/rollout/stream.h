#pragma once

/// Continuous rollout: groups are generated without a pause while the loop trains.
///
/// A group is begun as soon as the bound on staleness allows (rollout/staleness.h); finished ones
/// are judged in the order in which they were begun, or in that in which they finished, and leave
/// through the queue; after every B kept groups the record of a step's end follows. What runs when
/// the weights change goes on. docs/how/asynchronous_training.md.
///
/// Everything here is called on the rollout's thread.

#include <boost/asio/steady_timer.hpp>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/sample.h"
#include "rollout/session.h"
#include "rollout/step.h"
#include "rollout/step_record_queue.h"

namespace slime::rollout {

/// One class because each event of a group (sampled, scored, too old, judged) may change what else may
/// begin, and all of that is decided from the same counts.
class Stream {
 public:
  /// `on_end` is called once, when nothing of it is in flight any more; it may destroy the stream.
  /// References outlive it.
  Stream(const RolloutContext& context, StepRecordQueue& queue, Attempts& attempts,
         StreamOrder order, std::function<void()> on_end);

  // These throw nothing: what goes wrong is in the end of a step.

  void begin();
  /// The queue may have room again, or a lock is over.
  void go_on();
  /// The thread stands still until go_on().
  void hold_for_lock() { tell(HeldBy::kStateLock); }
  void look_at_stop_flag();
  /// The rollout ends: what is in flight is aborted, and nothing is handed back.
  void abandon();

  /// No group is begun until release(). `interrupts`: what runs in the engine is aborted, and goes
  /// on from its tokens afterwards; otherwise all groups that were begun are sampled to their ends.
  /// `on_quiet` is called once nothing is in the engine.
  void hold(bool interrupts, std::function<void()> on_quiet);
  /// The engine has these weights.
  void release(WeightVersion version);

  /// Groups that are neither kept nor dropped, in the order in which they were begun, each sample
  /// with the tokens that it has now; and all tokens that the stream has sampled by then.
  Snapshot snapshot() const;
  /// By the engine, without those under way.
  int64_t num_generated_tokens() const { return session_.num_generated_tokens(); }

 private:
  struct Open {
    std::shared_ptr<GroupInFlight> flight;
    bool is_too_old = false;  // aborted for that: dropped or begun again when it has come back
  };
  using OpenGroups = std::map<int64_t, Open>;  // by number: the order in which they were begun

  /// What a group is trained by.
  struct Deadline {
    int64_t last_step = 0;
    int64_t number = 0;
    auto operator<=>(const Deadline&) const = default;
  };

  int64_t num_ahead() const;
  int64_t step() const;
  bool may_begin() const;
  void admit();
  void done(const GroupInFlight& flight);
  void advance();
  OpenGroups::iterator next_to_judge();
  Deadline deadline(OpenGroups::const_iterator open) const;
  bool leaves_time_for_others(int64_t number) const;
  void abort_most_urgent();
  void judge_one(OpenGroups::iterator which);
  void give_up(OpenGroups::iterator which, std::size_t index);
  void begin_given_up_later();
  void drop(OpenGroups::iterator which, const std::string& reason);
  void count_dropped(const Group& group);
  void keep(OpenGroups::iterator which);
  void retry(OpenGroups::iterator which);
  void give_back(std::vector<Group> groups);
  void end_step();
  void tell(HeldBy what) const;
  void hand_back();
  void idle();

  Runtime& runtime_;
  const RolloutConfig& config_;
  const RolloutHooks& hooks_;
  StepRecordQueue& records_;
  Attempts& attempts_;
  FirstFailures& first_failures_;
  const StreamOrder order_;
  const std::function<void()> on_end_;
  Session session_;
  WeightVersion version_;
  OpenGroups open_;
  int64_t num_begun_ = 0;
  std::deque<int64_t>
      finished_;  // numbers, in the order of finishing; ConsumptionOrder::kFinish only
  /// By the engine: begun again in a later step, or when there is nothing else to wait for.
  std::vector<Group> given_up_;
  std::shared_ptr<boost::asio::steady_timer> pause_;  // before they are begun again in this step
  int64_t num_kept_ = 0;
  int64_t tokens_before_step_ = 0;  // generated, when the step began
  int64_t lost_before_step_ = 0;
  StepEnd end_;  // of the step that is being filled
  bool data_ended_ = false;
  bool is_held_ = false;
  bool is_held_back_ = false;  // a group could be judged, but the queue is full
  bool is_abandoned_ = false;
  bool is_complete_ = false;  // all steps have their groups
};

}  // namespace slime::rollout
