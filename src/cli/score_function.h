#pragma once

/// A reward in Python without a run: a function of the user's, or math-verify, in a plug-in host that is
/// called as in training (docs/plugins.md).

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/expected.h"
#include "core/sample.h"
#include "core/temporary_folder.h"
#include "plugin/hosts.h"
#include "plugin/question_handler.h"

namespace slime::cli {

struct ScoreFunctionConfig {
  std::string path;                // module.name, file.py:name, file.py
  config::RunConfig flags;         // `args`
  json::object own_flags = {};     // that are the function's own, also in `args`
  double timeout_seconds = 0;      // of a call
  bool takes_groups = false;       // all samples of a prompt in one call
  bool shows_what_it_says = true;  // its output and tracebacks, on standard error
};

class ScoreFunction {
 public:
  /// Imports it. Throws ConfigError with Python's traceback when that fails.
  explicit ScoreFunction(ScoreFunctionConfig config);
  /// Shows what the function has printed.
  ~ScoreFunction();
  ScoreFunction(const ScoreFunction&) = delete;
  ScoreFunction& operator=(const ScoreFunction&) = delete;

  /// The reward of each sample, all asked at the same time. Neighbours of one `group` are the samples
  /// of a prompt.
  std::vector<Expected<json::value>> score(const std::vector<Sample>& samples);

 private:
  std::vector<Expected<json::value>> score_groups(const std::vector<Sample>& samples);

  const ScoreFunctionConfig config_;
  const std::chrono::duration<double> timeout_;
  const TemporaryFolder logs_{"slime-score"};
  plugin::QuestionHandler questions_;  // rules that the function asks for
  std::unique_ptr<plugin::Hosts> hosts_;
};

}  // namespace slime::cli
