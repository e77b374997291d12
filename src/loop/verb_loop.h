#pragma once

/// The loop whose order another program decides: it does the verbs of a queue, one at a time, with the
/// steps that the built-in loops have (docs/decisions/0140-loop-in-python.md).
///
///   generate -> train or drop -> update_weights, save, evaluate in any order -> generate ...
///
/// A verb out of order is refused, and nothing is done. In an asynchronous run generate(i) may be asked
/// for while the rollout before it is in hand: its groups are handed over when it is awaited and that
/// rollout is trained, and the engines sample meanwhile.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "core/json.h"
#include "loop/steps.h"
#include "loop/verb_queue.h"
#include "report/collected.h"
#include "setup/run_schedule.h"

namespace slime::loop {

/// Capabilities of a run that decide which verbs are accepted, from its flags.
struct VerbRules {
  bool trains = true;
  bool generates = true;        // there are engines
  bool is_stream = false;       // engines sample beside training
  bool shares_weights = false;  // the engines read those that are trained
  bool can_go_back = true;      // a checkpoint may be written while a rollout is in hand
  bool evaluates = false;
  std::optional<int64_t> max_lag;  // of a stream that waits for newer weights
  std::chrono::milliseconds patience{
      10'000};  // with a verb that waits for one that nobody asks for
};

/// Callbacks of the loop: notes to the user, metrics, rewards.
struct VerbHooks {
  std::function<void(const std::string&)> tell = [](const std::string&) {};
  /// The metrics that were written since the last call.
  std::function<json::object()> new_metrics = [] { return json::object(); };
  /// The mean reward of groups, null where they have none.
  std::function<json::value(const report::Collected&)> reward_of = [](const auto&) {
    return json::value();
  };
  /// The folder of a step's checkpoint.
  std::function<std::string(int64_t)> checkpoint_of = [](int64_t) { return std::string(); };
};

/// Progress of a run: steps generated, trained, saved; weight version.
struct VerbState {
  int64_t next = 0;      // the step that is generated next
  int64_t done = -1;     // the last that was trained or dropped
  int64_t saved = -1;    // the last that a checkpoint has
  int64_t version = 0;   // of the engines' weights, where there are any
  int64_t behind = 0;    // steps that were trained since then
  bool in_hand = false;  // a rollout is generated, and neither trained nor dropped
};

/// A rollout that is shown to whoever asks; it does not change any more.
using ShownRollout = std::shared_ptr<const report::Collected>;

/// One class because which verb may come next follows from those before it.
class VerbLoop {
 public:
  /// References outlive the object.
  VerbLoop(Steps& steps, const setup::RunSchedule& schedule, VerbRules rules, VerbQueue& queue,
           VerbHooks hooks);

  /// Until close(), or Ctrl-C. Throws what a step throws, StepAbandoned too; whoever waits for a verb was
  /// not told yet then (VerbQueue::end).
  void run();

  // Any thread.

  VerbState state() const;
  /// Those of the last two rollouts. Throws ConfigError for others.
  ShownRollout rollout(int64_t step) const;

 private:
  void do_verbs();
  /// A rollout in hand, where the run ends.
  void give_back();

  struct Rollout {
    int64_t step = 0;
    ShownRollout collected;
    std::optional<train::TrainReport> report;
    bool is_done = false;      // trained or dropped
    bool is_recorded = false;  // its row of metrics is written
  };

  std::optional<std::size_t> choose(const std::deque<Verb>& waiting) const;
  json::object perform(const Verb& verb);
  json::object generate(const Verb& verb);
  json::object train(const Verb& verb);
  json::object drop(const Verb& verb);
  json::object update_weights();
  json::object evaluate(const Verb& verb);
  json::object save(const Verb& verb);

  /// The rollout that `verb` names. Throws Refused where it is not in hand.
  Rollout& in_hand(const Verb& verb);
  bool has_in_hand() const { return rollout_ && !rollout_->is_done; }
  void require_weights(std::string_view verb) const;
  void require_close_weights(int64_t step) const;
  /// The row of the rollout that was trained last, where it is not written.
  void record();
  void show();

  Steps& steps_;
  const setup::RunSchedule& schedule_;
  const VerbRules rules_;
  VerbQueue& queue_;
  const VerbHooks hooks_;
  std::optional<Rollout> rollout_;  // that was generated last
  VerbState now_;
  WeightVersion first_version_ = 0;
  bool has_stream_ = false;
  bool has_told_ = false;  // that weights are behind
  std::set<int64_t> dropped_;
  std::chrono::steady_clock::time_point last_end_;  // of a verb
  std::optional<int64_t> closing_;                  // the number of the verb
  mutable std::mutex mutex_;                        // guards what follows
  VerbState shown_state_;
  std::map<int64_t, ShownRollout> shown_;
};

}  // namespace slime::loop
