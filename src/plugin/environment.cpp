#include "plugin/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "config/problems.h"
#include "config/rules.h"
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
  std::array<int, 2> out{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0)
    throw ConfigError(fmt::format("--environment: no pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::vector<std::string> environment = python_environment();
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  pid_t child = -1;
  const int error = posix_spawnp(&child, words.front().c_str(), &actions, nullptr,
                                 pointers(words).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  std::string text;
  std::array<char, 4096> part{};
  while (error == 0 && text.size() < kLongestAnswer) {
    const ssize_t count = ::read(out[0], part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  ::close(out[0]);
  if (error != 0) {
    throw ConfigError(fmt::format("--plugin-python {}: cannot be started: {}", words.front(),
                                  std::strerror(error)));
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
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
