#pragma once

/// A child process of `slime check`: a fault of a GPU ends the child, and the report goes on.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace slime::acceptance {

struct ChildPlan {
  std::vector<std::string> words;  // program and arguments
  std::chrono::seconds patience{600};
  /// Called with each line of standard output; empty: it goes to `log` too.
  std::function<void(const std::string& line)> on_line = {};
  std::filesystem::path log = {};  // of standard error; empty: this process's
};

/// Runs the child to its end. Empty: it ended with exit code 0; otherwise how it ended, without a path or a name of
/// this machine: "ended by signal 6", "exit code 2", "took more than 600 s".
std::string run_child(const ChildPlan& plan);

}  // namespace slime::acceptance
