#pragma once

/// Groups that a rollout function of the user's returns (--rollout-function-path), in the place of the
/// rollout. Buffer and ledger are the program's: prompts that the function takes are dispatched, groups
/// that it returns are kept, those that it gives back wait, and what it does neither with has failed when
/// its call ends. Groups that it made itself get ordinals when it returns them.

#include <cstdint>
#include <optional>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "loop/engines.h"
#include "loop/failure_reasons.h"
#include "loop/fates.h"
#include "loop/group_source.h"
#include "loop/plugins.h"
#include "loop/prompt_answers.h"
#include "loop/recorder.h"
#include "loop/run_memory.h"
#include "loop/trainers.h"

namespace slime::loop {

class FunctionSource final : public GroupSource {
 public:
  /// References outlive the object.
  FunctionSource(const config::RunConfig& config, buffer::DataSource& prompts, Engines& engines,
                 Trainers& trainers, Fates& fates, RunMemory& memory, Recorder& recorder,
                 Plugins& plugins);

  /// Throws ConfigError when the function fails, or no group of its can be trained.
  Collected take(int64_t step) override;

 private:
  Expected<Group> keep(const json::value& record, const ReturnedStep& returned,
                       std::optional<Group> given, WeightVersion version);

  const config::RunConfig& config_;
  buffer::DataSource& prompts_;
  Engines& engines_;
  Trainers& trainers_;
  Fates& fates_;
  RunMemory& memory_;
  Recorder& recorder_;
  Plugins& plugins_;
  LeftOutPrompts left_out_;  // of the step
};

}  // namespace slime::loop
