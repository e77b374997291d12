#pragma once

/// Groups that a rollout function of the user's returns (--rollout-function-path), in the place of the
/// rollout. Buffer and ledger are the program's: prompts that the function takes are dispatched, groups
/// that it returns are kept, those that it gives back wait, and what it does neither with has failed when
/// its call ends. Groups that it made itself get ordinals when it returns them.

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "core/stop_flags.h"
#include "loop/outcome_log.h"
#include "loop/prompt_answers.h"
#include "loop/sampled_step.h"
#include "plugin/plugins.h"
#include "report/collected.h"
#include "report/failure_reasons.h"
#include "report/recorder.h"
#include "report/run_memory.h"
#include "roles/engines.h"
#include "roles/trainers.h"

namespace slime::loop {

/// One class because the same call is made between two steps (take) and beside the training of the
/// step before (draw, on the thread of loop/function_ahead.h), and answers for the same prompts.
class FunctionSource final {
 public:
  /// `sampled`: a step that the run begins with, from its checkpoint. References outlive the object.
  FunctionSource(const config::RunConfig& config, buffer::DataSource& prompts,
                 roles::Engines& engines, roles::Trainers& trainers, OutcomeLog& outcomes,
                 report::RunMemory& memory, report::Recorder& recorder, plugin::Plugins& plugins,
                 std::optional<SampledStep> sampled);

  /// Throws ConfigError when the function fails, or no group of its can be trained.
  report::Collected take(int64_t step);

  /// Calls the function, and keeps what it returns until take_sampled(). One thread at a time; buffer
  /// and ledger are that thread's, but for what a StateLock has. When `stop` becomes true nobody waits for
  /// the function any more, and what it has taken has no outcome. Throws like take().
  void draw(int64_t step, const StopFlags& stop);
  /// Whether this step is sampled.
  bool has_sampled(int64_t step) const;
  /// Of the thread of the loop. `masks_before`: with --mask-offpolicy-in-partial-rollout tokens of
  /// older weights are not trained; unset: than the newest of their group.
  report::Collected take_sampled(std::optional<WeightVersion> masks_before);

  /// As long as it lives the function gets no answers about prompts, and buffer and ledger are the
  /// owner's.
  class [[nodiscard]] StateLock {
   public:
    explicit StateLock(const FunctionSource& source) : source_(source), lock_(source.data_mutex_) {}

    /// Groups that the function has taken and neither returned nor given back, as it got them.
    std::vector<Group> taken() const;
    /// A step that nobody has taken.
    const std::optional<SampledStep>& sampled() const { return source_.sampled_; }

   private:
    const FunctionSource& source_;
    const std::lock_guard<std::mutex> lock_;
  };

 private:
  Expected<Group> keep(const json::value& record, const plugin::ReturnedStep& returned,
                       std::optional<Group> given, WeightVersion version);
  /// `num_sampled`: tokens that the engines sampled for the call.
  report::Collected keep_all(const plugin::ReturnedStep& returned, PromptAnswers& prompts,
                             WeightVersion version, int64_t num_sampled);

  const config::RunConfig& config_;
  buffer::DataSource& prompts_;
  roles::Engines& engines_;
  roles::Trainers& trainers_;
  OutcomeLog& outcomes_;
  report::RunMemory& memory_;
  report::Recorder& recorder_;
  plugin::Plugins& plugins_;
  report::LeftOutPrompts left_out_;  // of the step
  /// Whoever has it has buffer and ledger while a function is called. Guards what follows.
  mutable std::mutex data_mutex_;
  const PromptAnswers* answers_ = nullptr;  // of the call under way
  std::optional<SampledStep> sampled_;
};

}  // namespace slime::loop
