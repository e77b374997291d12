#pragma once

/// A child process that runs to its end, with what it prints; its standard input is empty.

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace slime {

struct ChildPlan {
  std::vector<std::string> words;  // program and arguments
  bool is_on_path = false;         // a program without a slash is looked for in PATH
  std::optional<std::vector<std::string>> environment =
      {};  // "NAME=value" each; none: this process's
  /// It is killed after that; none: it may take as long as it likes.
  std::optional<std::chrono::milliseconds> patience = {};

  enum class Stream { kOutput, kErrors };
  Stream reads = Stream::kOutput;  // of kErrors, standard output goes nowhere
  /// With kOutput: where standard error is appended, "/dev/null" for nowhere; empty: this process's.
  std::filesystem::path error_log = {};
  /// Called with each whole line of what is read; empty: ChildEnd::text has it all.
  std::function<void(const std::string& line)> on_line = {};
  /// The most bytes of the text, or of a line: a child that prints more is killed.
  std::size_t most_bytes = std::size_t{64} << 10;
  bool drops_the_rest = false;  // of the text, and the child goes on
};

struct ChildEnd {
  enum class How { kExited, kSignalled, kTimedOut, kPrintedTooMuch, kNotStarted };
  How how = How::kExited;
  int number = 0;    // the exit status, the signal, or the errno of kNotStarted
  std::string text;  // what it printed

  bool is_success() const { return how == How::kExited && number == 0; }
};

ChildEnd run_child(const ChildPlan& plan);

}  // namespace slime
