#pragma once

/// Rollout steps that were generated and that no checkpoint has, kept for the trainer that comes when this
/// one fails (docs/decisions/0138-engines-outlive-trainers.md).
///
///   FOLDER/step_0000012.json    a SampledStep (loop/sampled_step.h), as it was generated

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "core/sample.h"
#include "loop/outcome_log.h"
#include "report/collected.h"

namespace slime::loop {

struct UnsavedGroups {
  std::vector<Group> groups;
  int64_t num_steps = 0;
  std::string damage;  // of the file that ended them, with its name; empty: there is no next one
};

class UnsavedSteps final {
 public:
  /// Nothing is read before it is asked for; the folder is made with the first step.
  explicit UnsavedSteps(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Before it is trained; on the disk when this returns. Throws ConfigError where it has no room.
  void keep(int64_t step, const report::Collected& collected);
  /// A checkpoint has the steps up to this one.
  void saved(int64_t step);

  /// The groups of step `first` and those behind it, without a gap, step after step.
  UnsavedGroups read(int64_t first) const;

 private:
  std::filesystem::path folder_;
};

/// Puts groups that were generated behind the checkpoint in front of all that wait, finished, and has
/// `outcomes` count their tokens. Their prompts are not given out again. Returns their ordinals; none
/// where the prompts are others than those of the groups, and nothing is changed then.
std::set<int64_t> give_again(std::vector<Group> groups, buffer::DataSource& prompts,
                             OutcomeLog& outcomes);

}  // namespace slime::loop
