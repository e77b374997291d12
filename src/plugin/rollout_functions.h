#pragma once

/// Functions of the user's that stand for a whole step: --rollout-function-path and
/// --eval-function-path.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "core/stop_flags.h"
#include "plugin/hosts.h"
#include "plugin/question_handler.h"
#include "report/eval_report.h"
#include "report/metrics.h"

namespace slime::plugin {

/// What a rollout function returned: lists of records of samples, with the columns that they stand in.
struct ReturnedStep {
  json::array groups;
  Columns columns;
  report::Metrics metrics;
};

class RolloutFunctions {
 public:
  /// `place`: of a function among those of the hosts. References outlive the object.
  RolloutFunctions(const config::RunConfig& config, Hosts& hosts, QuestionHandler& handler,
                   std::function<int(std::string_view hook, const std::string& path)> place);

  // Both wait as long as the function takes, and answer its questions about prompts meanwhile. They
  // throw ConfigError with the reason when it fails, or when `stop` becomes true.

  ReturnedStep draw(int64_t step, const QuestionHandler::AnswerPrompts& prompts,
                    const StopFlags& stop) const;
  /// Scores, metrics and samples of its data sets.
  report::EvalReport evaluate(int64_t step, const QuestionHandler::AnswerPrompts& prompts,
                              const StopFlags& stop) const;

 private:
  Payload call(std::string_view hook, std::string_view flag, const std::string& path, int64_t step,
               const QuestionHandler::AnswerPrompts& prompts, const StopFlags& stop) const;
  report::Metrics metrics_of(const Payload& returned, std::string_view flag) const;

  const config::RunConfig& config_;
  Hosts& hosts_;
  QuestionHandler& question_handler_;
  const std::function<int(std::string_view, const std::string&)> place_;
};

}  // namespace slime::plugin
