#pragma once

/// The folder of a run: where everything it writes lies.
///
///   RUN_DIR/run.json                       flags, model, versions
///   RUN_DIR/metrics.jsonl  tensorboard/    numbers of each step
///   RUN_DIR/rollouts/step_000012.jsonl     samples of each step
///   RUN_DIR/skipped/12.jsonl               samples of a step whose gradients were not finite
///   RUN_DIR/workers/rank_1.log             what the other ranks printed, where there are some
///   RUN_DIR/timeline.jsonl                 who did what when (report/timeline.h)
///   RUN_DIR/ledger.jsonl                   the outcome of every prompt and token (`slime ledger`)
///   RUN_DIR/checkpoints/iter_0000012/      see train/checkpoint.h; --save puts them elsewhere
///   RUN_DIR/latest                         link to the newest checkpoint
///   RUN_DIR/lock                           who writes here; also in the folder of the checkpoints
///   RUN_DIR/branches/ID/                   the same of a branch (report/branch_files.h)
///
/// --load-debug-rollout-data 'RUN_DIR/skipped/{rollout_id}.jsonl' trains skipped steps again.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"
#include "report/branch_files.h"
#include "report/made_folders.h"
#include "report/run_lock.h"

namespace slime::report {

class RunFolder {
 public:
  /// Creates the folder and locks it, with that of the checkpoints, for this process. Throws
  /// ConfigError when that is not possible; it says who has the lock. Before anything is written it
  /// also throws when --save names a folder of other things. Folders that it made and no run.json
  /// was written to go with the object: the run was refused before it began.
  explicit RunFolder(const config::ModelFlags& config);

  /// The same paths to look at: nothing is created, locked or checked (--dry-run).
  static RunFolder only_named(const config::ModelFlags& config);

  /// False where the file system has no locks: a second run in the same folder is not noticed.
  bool is_locked() const;
  /// Throws ConfigError once the disk was full and the run's small files took the reserve
  /// (core/disk_reserve.h): what is whole is saved, and the run ends.
  void check_reserve() const;
  /// Of the branch that it was set to, the first where it was not.
  const std::filesystem::path& root() const { return root_; }
  const std::filesystem::path& checkpoints() const { return checkpoints_; }
  std::filesystem::path run_json() const { return root_ / "run.json"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path timeline() const { return root_ / "timeline.jsonl"; }
  std::filesystem::path ledger() const { return root_ / "ledger.jsonl"; }
  std::filesystem::path latest() const { return root_ / "latest"; }
  std::filesystem::path rollouts(int64_t step) const;
  std::filesystem::path skipped(int64_t step) const;
  std::filesystem::path worker_logs() const { return root_ / "workers"; }
  std::filesystem::path plugin_logs() const { return root_ / "plugin"; }

  /// The folders of the first branch.
  const BranchPlace& base() const { return base_; }
  const std::string& branch() const { return branch_; }
  /// From now on all paths are this branch's. The locks are those of the whole run.
  void go_to_branch(const std::string& name);
  /// Name of the run, and of its branch where that is not the first, for people.
  std::string title() const;

  /// Points RUN_DIR/latest at a checkpoint, atomically.
  void set_latest(const std::filesystem::path& checkpoint) const;
  void write_run_json(const json::object& run) const;
  /// How the run ended: "finished", "interrupted" or "failed", and why. One that says nothing was killed.
  void note_end(std::string_view how, std::string_view why = "") const;
  /// Rollout files of `first_step` and later steps, skipped ones too, left by a process that died:
  /// they will be made again.
  void remove_rollouts_from(int64_t first_step) const;
  /// Rollout files of steps before this one.
  void remove_rollouts_before(int64_t step) const;
  /// Throws ConfigError where the rollout files lie in a pool that is gone: nobody knows whether it was
  /// deleted, or is on a disk that is not there now.
  void check_pool() const;
  /// From now on the rollout files lie in `pool`/`run_id`/BRANCH, and RUN_DIR/rollouts leads there;
  /// what was there before is moved. Throws ConfigError where they lie in another pool already.
  void keep_rollouts_in(const std::filesystem::path& pool, const std::string& run_id) const;

 private:
  RunFolder() = default;

  /// Until the run ends.
  struct Reserve {
    explicit Reserve(std::filesystem::path folder);
    ~Reserve();
    Reserve(const Reserve&) = delete;
    Reserve& operator=(const Reserve&) = delete;
    const std::filesystem::path folder;
    bool is_kept;
  };

  BranchPlace base_;
  std::string branch_ = kMainBranch;
  std::filesystem::path root_;
  std::filesystem::path checkpoints_;
  std::vector<std::unique_ptr<RunLock>> locks_;
  std::unique_ptr<MadeFolders> made_;  // goes before the locks, and behind the reserve
  std::unique_ptr<Reserve> reserve_;
};

}  // namespace slime::report
