#pragma once

/// Files of a run's branches (docs/decisions/0137-branches.md).
///
///   RUN_DIR/branches/ID/                  a folder in the form of RUN_DIR (report/run_folder.h)
///   SAVE/branches/ID/                     its checkpoints; without --save RUN_DIR/branches/ID/checkpoints
///   SAVE/rollout/current.json             which branch goes on
///   SAVE/branches/ID/rollout/branch.json  where the branch began
///
/// The first branch is RUN_DIR itself and has the name "main". A folder with `.unfinished` is of a
/// process that died while it made a branch, or whose run did not begin.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::report {

inline constexpr const char* kMainBranch = "main";

/// The folders of one branch.
struct BranchPlace {
  std::filesystem::path root;
  std::filesystem::path checkpoints;
};

/// `base`: those of the first branch.
BranchPlace place_of_branch(const BranchPlace& base, const std::string& name);

/// Names of all branches that were made to the end, main first, the others by their names.
std::vector<std::string> branch_names(const BranchPlace& base);

/// The branch that current.json names, whether it is there or not.
std::string named_branch(const BranchPlace& base);
/// The branch that a start without --load goes on in. Throws ConfigError where current.json names
/// one that is not there.
std::string active_branch(const BranchPlace& base);
/// Durable when this returns. `step`: that it stands at.
void set_active_branch(const BranchPlace& base, const std::string& name, int64_t step);

/// Where a branch began.
struct BranchOrigin {
  std::string parent;  // a branch
  int64_t step = 0;    // the last that both have
  double time = 0;     // unix seconds
  json::object flags;  // of the command that made it
};

/// Nothing for main. Throws ConfigError where the file is not of this form.
std::optional<BranchOrigin> origin_of_branch(const BranchPlace& base, const std::string& name);
void write_origin(const BranchPlace& base, const std::string& name, const BranchOrigin& origin);

/// A name that no branch has.
std::string new_branch_name(const BranchPlace& base);
/// While a branch is made, and until it begins.
void mark_unfinished(const BranchPlace& base, const std::string& name);
void mark_finished(const BranchPlace& base, const std::string& name);
/// Removes all branches but the first, whose folders stay.
void remove_branches(const BranchPlace& base);
/// Removes branches that were not made to the end. The caller has the run's lock.
void remove_unfinished_branches(const BranchPlace& base);

}  // namespace slime::report
