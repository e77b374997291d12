#pragma once

/// Functions of the user's that see a whole step, or the whole buffer. Who calls waits.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/data_source.h"
#include "config/run_config.h"
#include "config/users_functions.h"
#include "core/sample.h"
#include "plugin/question_handler.h"
#include "report/collected.h"
#include "report/eval_report.h"

namespace slime::plugin {

class StepFunctions {
 public:
  /// `place`: of a function among those of the hosts. References outlive the object.
  StepFunctions(const config::RunConfig& config, Hosts& hosts, QuestionHandler& handler,
                std::function<int(std::string_view hook, const std::string& path)> place);

  // These throw ConfigError with the reason when the function fails: a step that it has not seen
  // must not be trained.

  /// --rollout-sample-filter-path: fn(args, groups), which says remove_sample where it wants to.
  void filter_samples(int64_t step, std::vector<Group>& groups) const;
  /// --buffer-filter-path: fn(args, None, buffer, num_samples); empty without one.
  buffer::ChooseWaitingFn choose_waiting() const;
  /// --rollout-all-samples-process-path: fn(args, all_groups, data_source), with those that a filter
  /// dropped. `prompts` is its data source.
  bool sees_dropped() const { return !config_.rollout_all_samples_process_path.empty(); }
  void process_all(int64_t step, std::vector<Group>& kept, std::vector<Group> dropped,
                   const QuestionHandler::AnswerPrompts& prompts) const;

  // True: the function has logged it, and nobody else is to. One that fails is told of, and has not.

  /// --custom-rollout-log-function-path.
  bool log_rollout(int64_t step, const report::Collected& collected) const;
  /// --custom-eval-rollout-log-function-path: what it logs is in the report then, and whether it
  /// writes all of it.
  void log_evaluation(int64_t step, report::EvalReport& report) const;

  /// before_weight_update and after_weight_update, where the rollout function's module has them: `moment` is
  /// the name. Throws ConfigError.
  void at_weight_update(std::string_view moment, int64_t step, WeightVersion version) const;
  /// --custom-update-weight-post-write-path: fn(args, version_dir, rollout_engines). Throws ConfigError.
  void after_write(const std::filesystem::path& version_folder) const;

 private:
  Call call(std::string_view hook, const std::string& path, std::string subject,
            std::function<json::object(Columns&)> arguments) const;

  const config::RunConfig& config_;
  const std::vector<config::UsersFunction> functions_;
  Hosts& hosts_;
  QuestionHandler& question_handler_;
  const std::function<int(std::string_view, const std::string&)> place_;
};

}  // namespace slime::plugin
