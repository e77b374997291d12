#pragma once

/// The process of a plug-in host: `python -m slime.host` in a session of its own, with a socket as
/// descriptor 3, and what it writes to its standard output and error.

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "net/frame_channel.h"
#include "plugin/process_tree.h"

namespace slime::plugin {

/// A log of bounded growth: 8 MiB of each minute, and a word where something is left out; of bounded size,
/// as core/log_rotation.h says.
class HostLog {
 public:
  explicit HostLog(std::filesystem::path file) : file_(std::move(file)) {}

  void add(std::string_view text);
  /// The last lines that were added.
  std::string tail() const;
  const std::filesystem::path& file() const { return file_; }
  bool is_empty() const { return last_.empty(); }

 private:
  std::filesystem::path file_;
  std::chrono::steady_clock::time_point minute_{};  // when it began
  uint64_t written_ = 0;                            // in this minute
  uint64_t left_out_ = 0;
  std::string last_;
};

/// Where the package that the program brings along lies: `python` beside the sources that it was
/// built in. Empty: nowhere, and the interpreter's own `slime` is used.
std::filesystem::path package_folder();

/// The program's environment, with that folder first on PYTHONPATH: "NAME=value" each.
std::vector<std::string> python_environment();

class HostProcess {
 public:
  /// Throws ConfigError when it cannot be started. `log` outlives the object. `board`: a descriptor
  /// that it gets as descriptor 4; -1: none.
  HostProcess(const std::string& python, HostLog& log, int board = -1);
  /// Kills it and all that it started.
  ~HostProcess();
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  net::FrameChannel& channel() { return channel_; }
  /// Where its output arrives; -1 once that is closed.
  int output() const { return output_; }
  void read_output();

  /// What it holds too much of, with all that it started; empty: nothing. Looks again after a fifth of a
  /// second, or later where looking takes long. `memory_bytes` 0: no limit.
  std::string over_limit(uint64_t memory_bytes);

  /// How it ended: "was killed by signal 11 (Segmentation fault)". Waits a moment for one that is
  /// about to (`waits`), then kills it and all that it started.
  std::string end(bool waits);

 private:
  void kill_all();

  int theirs_ = -1;
  net::FrameChannel channel_;
  HostLog& log_;
  int output_ = -1;
  pid_t process_ = -1;
  std::vector<TreeProcess> tree_;  // when it was last looked at
  std::chrono::steady_clock::time_point look_at_{};
};

}  // namespace slime::plugin
