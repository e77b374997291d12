#pragma once

/// The end of a child process of `slime check`, in words: a fault of a GPU ends the child, and the report goes on.

#include <string>

#include "core/child_process.h"

namespace slime::acceptance {

/// Runs the child to its end. Empty: it ended with exit code 0; otherwise how it ended, without a path or a name of
/// this machine: "ended by signal 6", "exit code 2", "took more than 600 s". Throws ConfigError where it cannot be
/// started.
std::string problem_of_child(const ChildPlan& plan);

}  // namespace slime::acceptance
