#pragma once

/// A training run: builds every station from the user's flags, and gives the loop its verbs.
///
/// Everything that can be wrong with flags, data, template and model directory is found in the
/// constructor, before any token is generated. The loop itself is loop/sync_loop.cpp.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/dataset.h"
#include "buffer/ledger.h"
#include "config/parse_flags.h"
#include "config/run_config.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "kernels/trace.h"
#include "loop/evaluation.h"
#include "loop/heap_trim.h"
#include "loop/interrupt.h"
#include "loop/memory_plan.h"
#include "loop/metrics.h"
#include "loop/prompts.h"
#include "loop/run_folder.h"
#include "loop/step_profiler.h"
#include "loop/supervised.h"
#include "loop/tracking.h"
#include "loop/trainers.h"
#include "loop/wandb_process.h"
#include "rollout/reward_call.h"
#include "rollout/rollout.h"
#include "train/checkpoint.h"
#include "view/progress.h"

namespace slime::loop {

/// What a rollout step brought.
struct Collected {
  std::vector<Group> groups;
  Metrics metrics;
  int64_t generated_tokens = 0;
  double seconds = 0;
};

class TrainingRun {
 public:
  /// `flags` are complete and valid; their warnings are shown first. Throws ConfigError.
  TrainingRun(config::ParsedFlags flags, const Clock& clock);

  int64_t first_step() const { return first_step_; }
  int64_t num_steps() const { return num_steps_; }
  bool trains() const { return !config_.debug_rollout_only; }
  bool is_on_gpu() const { return config_.device != "cpu"; }
  bool needs_engine() const { return !config_.debug_train_only && !config_.trains_on_rows(); }
  bool was_interrupted() const { return interrupt_->requested().load(); }
  bool evaluates_before_training() const;
  bool evaluates_after(int64_t step) const;
  bool saves_after(int64_t step) const;

  // The verbs of the loop, in its order.
  Collected collect(int64_t step);
  train::TrainReport train(const std::vector<Group>& groups);
  /// New weights to the engine: the same memory, so a version and nothing else.
  void publish(WeightVersion version);
  void record(int64_t step, const Collected& collected, const train::TrainReport* report);
  void evaluate(int64_t step);
  void save(int64_t step);
  /// The closing table. Returns the exit code.
  int finish(int64_t steps_done);

 private:
  Collected generate(int64_t step);
  Collected read_rollout(int64_t step) const;
  Collected take_rows();
  std::optional<int64_t> rollouts_per_epoch() const;
  void start_trainer_ranks(const std::vector<std::string>& arguments);
  rollout::RolloutHooks make_hooks();
  /// Work that takes memory; when there is not enough, the error says who has it, what would help
  /// and where the last checkpoint is.
  void explaining_lack_of_memory(Turn turn, const std::function<void()>& work) const;
  /// Sets memory_. `trainer`: null where nothing is trained; `is_taken`: it has its memory.
  void plan_memory(const model::Precision& precision, const train::TrainConfig* trainer,
                   bool is_taken);
  /// What the trainer holds for its own turn goes back.
  void release_trainer_memory();
  /// Most memory since the last reset, of the whole GPU or of this process; and now, in bytes.
  int64_t peak_memory() const;
  int64_t memory_now() const;
  void reset_peak_memory() const;
  /// Begins a phase of the step: for the display, and in a trace as long as the result lives.
  [[nodiscard]] kernels::TraceRange phase(const char* name, std::string_view unit = {},
                                          int64_t total = 0) const;
  view::MemoryUse memory_of_step() const;
  train::TrainBatch make_batch(const std::vector<Group>& groups) const;
  void write_metrics(int64_t step, const Metrics& metrics);
  void announce_trace(const std::optional<std::filesystem::path>& file);
  void note_fate(const buffer::LedgerRecord& record);
  void write_rollout_files(int64_t step, const Collected& collected,
                           const train::TrainReport* report) const;

  config::RunConfig config_;
  const Clock& clock_;
  RunFolder folder_;
  std::string run_id_;  // tells this run's checkpoints from those of others
  ModelText text_;
  std::optional<buffer::Dataset> prompts_;
  std::unique_ptr<buffer::PromptStream> stream_;  // --streaming-data, in the place of prompts_
  std::optional<SupervisedRows> rows_;            // supervised training only
  std::optional<Evaluation> evaluation_;
  std::optional<buffer::DataSource> source_;
  std::optional<train::Checkpoint> checkpoint_;  // what the run resumes from
  std::unique_ptr<model::Network> network_;
  std::unique_ptr<Trainers> trainers_;         // null: nothing is trained
  std::optional<MemoryPlan> memory_;           // from when the networks are there
  bool takes_turns_ = false;                   // the cache gives its memory back while training
  int64_t rollout_peak_ = 0, train_peak_ = 0;  // bytes in the newest step
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<rollout::Rollout> rollout_;
  std::unique_ptr<buffer::Ledger> ledger_;
  std::unique_ptr<Tracker> tracker_;
  std::unique_ptr<WandbProcess> wandb_;
  std::unique_ptr<view::Progress> progress_;
  std::optional<Interrupt>
      interrupt_;  // from when there are steps to finish; before, a signal simply ends the process
  int64_t first_step_ = 0;
  int64_t num_steps_ = 0;
  std::optional<int64_t> last_saved_;
  std::vector<std::pair<std::string, double>>
      first_scores_;  // of the first and the newest evaluation
  std::vector<std::pair<std::string, double>> last_scores_;
  HeapTrim heap_trim_;
  std::optional<StepProfiler> profiler_;  // --profile
  std::optional<double> first_reward_;
  double last_reward_ = 0;
  Clock::TimePoint trained_until_;  // end of the last training phase
};

}  // namespace slime::loop
