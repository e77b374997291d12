#pragma once

/// Choice of the branch that a command goes on in, and the making of new ones
/// (docs/decisions/0137-branches.md).
///
///   command                                             goes on
///   without --load, or --load names the folder of --save  in the active branch, after its newest step
///   --load SAVE/branches/ID (or branches/main)            in that branch, which becomes the active one
///   --ckpt-step n                                         after n, in the history of that branch
///   --load SAVE/rollout/committed_n.json, SAVE/iter_n     after n, in the branch that the file is of
///   latest_checkpointed_iteration.txt edited by hand      after the step it says
///
/// After the newest step of a branch it goes on in it; after another in a new one. The same command
/// again goes on in the branch that it made, or in the run that it began with --load of another.

#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/clock.h"
#include "core/json.h"
#include "report/run_folder.h"
#include "train/checkpoint.h"

namespace slime::loop {

/// Branch and step at which a command continues.
struct BranchChoice {
  bool is_own = true;            // in this run; false: --load names something else
  std::string branch = "main";   // to go on in; of a new one: its parent
  std::optional<int64_t> step;   // after this one, where the command chooses it
  bool was_made_before = false;  // the branch is one that this command has made
  bool is_of_load = false;       // the first branch, which began with this --load of another run
  bool makes_branch = false;     // the step is not the newest of the branch
  /// The checkpoints of --load that are not this run's, without the name of one of them.
  std::string elsewhere;
  /// Folder whose latest_checkpointed_iteration.txt was edited by hand: it is put right once the
  /// choice is followed.
  std::optional<std::string> edited;
};

/// Values of --load, --ckpt-step, --finetune and --no-load-optim with which a run began; in its run.json under this name.
inline constexpr const char* kBeganWith = "began_with";
json::object beginning_of(const config::RunConfig& config);

/// Reads only. `warn` gets what was found that people should know. Throws ConfigError where a step is
/// asked for that is not there, or in a way that it cannot be gone on from.
BranchChoice choose_branch(const config::RunConfig& config, const report::RunFolder& folder,
                           const train::Warn& warn);

/// Sets `folder` to the branch, which is made first where it is new: then it is not there for others
/// until begin_branch(). Removes branches that were not made to the end.
void follow_choice(const BranchChoice& choice, report::RunFolder& folder, const train::Warn& warn);

/// The run begins to write: a new branch is there, and the branch is the active one.
void begin_branch(const config::RunConfig& config, const BranchChoice& choice,
                  const report::RunFolder& folder, int64_t step, const Clock& clock);

}  // namespace slime::loop
