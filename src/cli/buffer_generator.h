#pragma once

/// The process beside a rollout buffer that draws: a generator of the user's, in Python.

#include <sys/types.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::cli {

struct GeneratorConfig {
  std::string python = "python3";
  std::vector<std::string> files;  // file.py or package.module, each with TASK_TYPE and run_rollout
  std::filesystem::path folder;    // for generator.log and generator.json
};

/// Any thread. One process at a time: it begins with start() and is ended by the next one, by the
/// destructor, or by the death of this program.
class BufferGenerator final {
 public:
  /// Asks Python which tasks the files are for; without files that is left to start(). Throws
  /// ConfigError when a file cannot be used.
  explicit BufferGenerator(GeneratorConfig config);
  ~BufferGenerator();
  BufferGenerator(const BufferGenerator&) = delete;
  BufferGenerator& operator=(const BufferGenerator&) = delete;

  /// By task: {"file": ..., "hooks": [...]}. Empty without files: built in is math.
  const json::object& tasks() const { return tasks_; }
  /// Throws ConfigError when Python cannot be started.
  void start(const json::object& payload);
  /// "none", "running", "ended with exit code 1", "was killed by signal 9".
  std::string state();

 private:
  pid_t spawn(const std::vector<std::string>& words, const std::filesystem::path& output);
  void end();          // with mutex_
  std::string look();  // with mutex_

  const GeneratorConfig config_;
  json::object tasks_;
  std::mutex mutex_;
  pid_t process_ = -1;  // guarded by mutex_: the running one
  std::string state_ = "none";
};

}  // namespace slime::cli
