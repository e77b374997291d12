#pragma once

/// Beginning of a new branch: a folder as a run killed behind a checkpoint would have left it, so
/// that going on in it is going on with a run.

#include <cstdint>

#include "report/branch_files.h"

namespace slime::loop {

/// Fills the folders of `to`, which are there, with what `from` had behind the checkpoint of `step`.
/// Files that are never written again are hard links where the file system has them. Durable when
/// this returns. Throws ConfigError when the system refuses.
void copy_branch(const report::BranchPlace& from, const report::BranchPlace& to, int64_t step);

}  // namespace slime::loop
