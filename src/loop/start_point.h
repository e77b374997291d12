#pragma once

/// Start point of a run: anew, at its own newest checkpoint, or at that of another run. What an
/// earlier run left in the folder is never overwritten unless --overwrite says so.
///
///   --load               RUN_DIR has own checkpoints   it has steps, no checkpoint   it is empty
///   not given            goes on after the newest      refused (1)                   begins
///   what --save names    the same                      the same                      begins (2)
///   another folder       refused (4)                   refused (1)                   begins there
///   model directory (3)  refused (4)                   refused (1)                   begins anew
///
/// (1) But a run that died before its first checkpoint starts over: RUN_DIR/latest was never made,
///     and the same command is given again (--run-dir and --save may differ: folders are moved).
///     Its steps are made again, as those after a checkpoint are. With --rollout-session-id the
///     settings may differ that may in a session, but for those that say where the run begins.
///     One that ended before its first step has a ledger alone: any run begins there.
/// (2) Published scripts give --load and --save alike, for the first start too.
/// (3) Or a folder of checkpoints with --finetune: weights alone, everything else from the beginning.
///
/// (4) But a run that began with that --load goes on after its own newest checkpoint, whole: --finetune and
///     --no-load-optim left out parts of what it began with, and are behind it.
///
/// A run that begins without a checkpoint takes the weights of --ref-load where that names a model,
/// as the original does, and else those of --hf-checkpoint.
///
/// docs/decisions/0041-run-directory.md has the reasons.

#include <functional>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "loop/branches.h"
#include "report/run_folder.h"
#include "train/checkpoint.h"

namespace slime::loop {

struct StartPoint {
  std::optional<train::Checkpoint> checkpoint;  // to go on from; none: the run begins
  std::string weights;                          // model directory of the actor's weights
  std::string adapter;  // directory of its adapter, where that does not begin with the run
  /// --finetune: the checkpoint of `weights`, of which other networks are taken too.
  std::optional<train::Checkpoint> finetuned;
  uint32_t left_out = 0;  // of either checkpoint (train::LeavesOut)
  /// The checkpoint is this run's own, so its ledger position is one of RUN_DIR/ledger.jsonl.
  /// Otherwise what the ledger has does not count any more.
  bool is_own = false;
  bool overwrites = false;  // the caller calls remove_history before it writes
  std::string run_id;
};

/// `folder` is locked, and is of the branch that `choice` chose. `warn` gets what find_checkpoint has
/// to say, and that a run starts over. Throws ConfigError when --load names a folder without
/// checkpoints, and when results would be overwritten.
StartPoint choose_start(const config::RunConfig& config, const report::RunFolder& folder,
                        const BranchChoice& choice, const train::Warn& warn);

/// Throws ConfigError where more steps are trained than the run would have.
void refuse_fewer_steps(const config::RunConfig& config, const StartPoint& start, int64_t planned);

/// Where trainers that were lost begin again: at the newest checkpoint of their own run, or, before
/// there is one, where the run began (`first`). Throws ConfigError when all checkpoints are damaged.
StartPoint choose_start_again(const StartPoint& first, const report::RunFolder& folder,
                              const train::Warn& warn);

/// Of the trainers that wrote the checkpoint; -1: of none, it does not say.
int64_t epoch_of(const StartPoint& start);

}  // namespace slime::loop
