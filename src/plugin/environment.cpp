#include "plugin/environment.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "config/problems.h"
#include "config/rules.h"
#include "core/child_process.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "plugin/host_process.h"

namespace slime::plugin {
namespace {

constexpr const char* kGenerate = "slime.environments.generate";
constexpr std::size_t kLongestAnswer = 1 << 20;
/// An environment that fails does so from its first episode.
constexpr int64_t kMostFailedGroups = 8;
constexpr const char* kRewardField = "reward";

/// All that it writes to its standard output; its standard error is this program's.
std::string output_of(std::vector<std::string> words) {
  const ChildPlan plan{.words = std::move(words),
                       .is_on_path = true,
                       .environment = python_environment(),
                       .most_bytes = kLongestAnswer};
  ChildEnd end = run_child(plan);
  if (end.how == ChildEnd::How::kNotStarted) {
    throw ConfigError(fmt::format("--plugin-python {}: cannot be started: {}", plan.words.front(),
                                  std::strerror(end.number)));
  }
  return std::move(end.text);
}

/// What python/slime/environments/__main__.py answers.
json::object describe(const config::RunConfig& config) {
  const std::string& environment = config.environment;
  const json::object question{
      {"environment", environment},
      {"args", parse_json(config.environment_args, "--environment-args")},
      {"evaluates", config.eval_interval.has_value()},
      {"model", config.hf_checkpoint.peek()},
  };
  const std::string text = output_of(
      {config.plugin_python, "-m", "slime.environments", json_text(json::value(question))});
  const auto answer = try_parse_json(text);
  if (!answer || !answer->is_object()) {
    throw ConfigError(
        fmt::format("--environment {}: {} ended without an answer; what it wrote is above",
                    environment, config.plugin_python));
  }
  if (const json::value* problem = answer->get_object().if_contains("problem"))
    throw ConfigError(
        fmt::format("--environment {}: {}", environment, problem->as_string().c_str()));
  return answer->get_object();
}

template <typename T>
void set(config::Flag<T>& flag, T value, const config::RunConfig& config) {
  flag = std::move(value);
  flag.stems_from(config.environment);
}

}  // namespace

void open_environment(config::ParsedFlags& flags) {
  config::RunConfig& config = flags.config;
  if (config.environment.peek().empty()) return;
  config::Problems problems(flags.problems);
  config::check_environment(flags, problems);
  problems.throw_if_any();
  const json::object answer = describe(config);
  const FieldReader fields(answer, "--environment: ");
  set(config.prompt_data, {*fields.required().text("rows")}, config);
  set(config.input_key, std::string("prompt"), config);
  set(config.apply_chat_template, true, config);
  set(config.custom_generate_function_path, std::string(kGenerate), config);
  if (!flags.gives("--reward-key")) set(config.reward_key, std::string(kRewardField), config);
  if (!flags.gives("--max-failed-groups")) set(config.max_failed_groups, kMostFailedGroups, config);
  if (!config.eval_interval) return;
  if (!flags.gives("--eval-reward-key"))
    set(config.eval_reward_key, std::string(kRewardField), config);
  set(config.eval_prompt_data,
      {*fields.required().text("name"), *fields.required().text("eval_rows")}, config);
}

}  // namespace slime::plugin
