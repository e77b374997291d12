#pragma once

/// Groups of reinforcement learning: prompts of the buffer, responses of the engines, scores of the
/// reward. Tells the outcome of every prompt that it takes.
///
/// While take() runs, the buffer and the ledger belong to the rollout's thread; between its calls
/// they belong to the loop's, which writes checkpoints and notes what was trained. With a stream
/// they belong to the rollout's thread throughout, and the loop borrows them.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "plugin/plugins.h"
#include "report/failure_reasons.h"
#include "report/recorder.h"
#include "report/run_memory.h"
#include "roles/engines.h"
#include "roles/trainers.h"
#include "rollout/rollout.h"
#include "rollout/rounds.h"
#include "setup/run_schedule.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::loop {

/// What the flags say of how a step is sampled.
rollout::RolloutConfig rollout_config(const config::RunConfig& config);

/// How responses are detokenized and scored, without prompts and filters. `config`, `tokenizer` and
/// `plugins` outlive the hooks. Throws ConfigError for a reward that does not exist.
rollout::RolloutHooks scoring_hooks(const config::RunConfig& config,
                                    const text::Tokenizer& tokenizer, plugin::Plugins& plugins);

/// One class because a step, a stream and the rounds between trainings are sampled by one rollout, which
/// lives as long as it does, with one set of rules, and tell the outcomes of the same prompts.
class RolloutSource final : public GroupSource {
 public:
  /// References outlive the object. Throws ConfigError for a reward or filter that does not exist.
  RolloutSource(const config::RunConfig& config, const text::Tokenizer& tokenizer,
                buffer::DataSource& prompts, roles::Engines& engines, roles::Trainers& trainers,
                OutcomeLog& outcomes, report::RunMemory& memory, report::Recorder& recorder,
                plugin::Plugins& plugins);
  ~RolloutSource() override;

  /// Generation does not end with a step any more: it goes on while the loop trains. `version`: of
  /// the weights that the engines have. Called once, before the first take(). The rollout's thread
  /// owns buffer and ledger from here on; Rollout::StateLock takes them for a while.
  void start_stream(const setup::RunSchedule& schedule, WeightVersion version) override;

  /// Calls `train`. With --deterministic-schedule generation goes on as far as it does while a step
  /// is trained, no further, before this returns. Throws what `train` or the rollout throws.
  void while_training(const std::function<void()>& train) override;

  /// One rollout step: with the weights that the engines have, or the next of the stream. Ends early
  /// only when a rank of the trainers is lost, and throws then, or at Ctrl-C: StepAbandoned.
  report::Collected take(int64_t step) override;

  bool draws() const override { return true; }
  bool is_ahead() const override { return stream_.has_value(); }
  rollout::Rollout* stream() override { return stream_ ? &rollout_ : nullptr; }
  rollout::Rollout& rollout() override { return rollout_; }

  /// A checkpoint has them given out again.
  bool abandon(const std::vector<Group>& groups) override;
  OpenGroups open_groups() override;
  rollout::Snapshot between_steps() override;

 private:
  class Prompts;

  rollout::RolloutHooks make_hooks(const text::Tokenizer& tokenizer);
  rollout::GroupFilter make_filter() const;
  /// On the rollout's thread: the group was filtered, or failed.
  void note_drop(const Group& group, const std::string& reason);
  void add_stream_metrics(report::Metrics& metrics);
  rollout::StepResult take_step(int64_t step, WeightVersion version);
  void show_to_users_functions(int64_t step, std::vector<Group>& groups);

  const config::RunConfig& config_;
  buffer::DataSource& prompts_;
  roles::Engines& engines_;
  roles::Trainers& trainers_;
  OutcomeLog& outcomes_;
  report::RunMemory& memory_;
  report::Recorder& recorder_;
  plugin::Plugins& plugins_;
  rollout::ResponseRules rules_;
  const std::unique_ptr<Prompts> rollout_prompts_;
  report::LeftOutPrompts left_out_;  // of the step
  std::mutex dropped_mutex_;
  std::map<std::string, int64_t> dropped_tokens_;  // by reason; guarded by dropped_mutex_
  std::vector<Group>
      dropped_;  // by filters, for a function of the user's; guarded by dropped_mutex_
  std::atomic<int64_t> num_under_way_{0};     // of the stream's groups
  std::optional<rollout::Staleness> stream_;  // of the stream, when one was started
  std::vector<Group> abandoned_;
  std::unique_ptr<rollout::Rounds> rounds_;  // --deterministic-schedule
  rollout::Rollout rollout_;
};

}  // namespace slime::loop
