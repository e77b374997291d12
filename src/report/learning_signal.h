#pragma once

/// Learning signal of each step: a step whose rewards are all equal, whose gradients are zero or which
/// trained no token changes nothing, with exit code 0. It is told in one line, with the likely cause.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "train/trainer.h"

namespace slime::report {

class LearningSignal {
 public:
  /// `config` outlives the object.
  explicit LearningSignal(const config::RunConfig& config) : config_(config) {}

  /// What is to be said of a step, at most one line: "step 7: all 64 rewards are 0: ...". The third
  /// such step in a row, and every tenth after it, asks whether the run makes sense. `report` is null
  /// where nothing is trained.
  std::optional<std::string> line_of(int64_t step, const std::vector<Group>& groups,
                                     const train::TrainReport* report);

 private:
  std::optional<std::string> lack_of(const std::vector<Group>& groups,
                                     const train::TrainReport* report) const;

  const config::RunConfig& config_;
  int num_in_a_row_ = 0;
};

}  // namespace slime::report
