#include "loop/plugins.h"

#include <algorithm>
#include <utility>

#include "config/parse_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "plugin/filter.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"
#include "plugin/sample_hook.h"

namespace slime::loop {
namespace {

/// Those that all hosts have come first.
template <typename Function>
std::vector<Function> in_order_of_hosts(std::vector<Function> functions) {
  std::ranges::stable_partition(functions, [](const Function& each) { return !each.keeps_state; });
  return functions;
}

template <typename Function>
std::vector<Function> functions_of(const config::RunConfig& config,
                                   const std::vector<std::string>& eval_rewards) {
  std::vector<Function> all;
  const auto add = [&all](std::string hook, const std::string& path, bool keeps_state) {
    const bool is_known = std::ranges::any_of(
        all, [&](const Function& each) { return each.hook == hook && each.path == path; });
    if (!is_known) all.push_back({std::move(hook), path, keeps_state});
  };
  for (const config::UsersFunction& each : config::users_functions(config))
    add(std::string(each.hook), each.path, each.keeps_state);
  for (const std::string& path : eval_rewards) add("reward", path, false);
  return in_order_of_hosts(std::move(all));
}

}  // namespace

plugin::HostsConfig Plugins::hosts_config(const std::filesystem::path& logs) {
  plugin::HostsConfig hosts{
      .python = config_.plugin_python,
      .num_hosts = static_cast<int>(config_.plugin_hosts),
      .logs = logs,
      .flags = config::flags_for_users(config_),
      .hooks = {},
      .hooks_of_first = {},
      .on_question = [&desk = *desk_](plugin::Question question, plugin::ReplyFn reply) {
        desk.take(std::move(question), std::move(reply));
      }};
  for (const Function& each : functions_)
    (each.keeps_state ? hosts.hooks_of_first : hosts.hooks).push_back({each.hook, each.path});
  return hosts;
}

Plugins::Plugins(const config::RunConfig& config, const std::vector<std::string>& eval_rewards,
                 const std::filesystem::path& logs)
    : config_(config),
      timeout_(config.plugin_timeout_seconds),
      reward_timeout_(config.reward_timeout_seconds.value_or(config.plugin_timeout_seconds)),
      functions_(functions_of<Function>(config, eval_rewards)),
      desk_(std::make_unique<QuestionDesk>(config)),
      hosts_(std::make_unique<plugin::Hosts>(hosts_config(logs))),
      step_functions_(std::make_unique<StepFunctions>(
          config, *hosts_, *desk_,
          [this](std::string_view hook, const std::string& path) { return place(hook, path); })),
      batch_functions_(std::make_unique<BatchFunctions>(
          config, *hosts_, *desk_,
          [this](std::string_view hook, const std::string& path) { return place(hook, path); })) {}

Plugins::~Plugins() = default;

int Plugins::place(std::string_view hook, const std::string& path) const {
  const auto found = std::ranges::find_if(
      functions_, [&](const Function& each) { return each.hook == hook && each.path == path; });
  check(found != functions_.end(), "a function that is called was resolved");
  return static_cast<int>(found - functions_.begin());
}

void Plugins::tell_by(std::function<void(const std::string&)> tell) {
  hosts_->tell_by(std::move(tell));
}

bool Plugins::scores(const Sample& sample) const {
  return config_.has_users_reward() || !sample.custom_rm_path.empty();
}

rollout::AskScoreFn Plugins::reward() {
  const bool has_any = std::ranges::find(functions_, "reward", &Function::hook) != functions_.end();
  if (!has_any) return nullptr;
  return [this](Sample sample, std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
    const std::string& own = sample.custom_rm_path;
    const int hook = place("reward", own.empty() ? config_.custom_rm_path : own);
    plugin::score(*hosts_, hook, reward_timeout_, std::move(sample), std::move(stop),
                  std::move(answer));
  };
}

decltype(rollout::RolloutHooks::ask_group_score) Plugins::group_reward() {
  if (!config_.group_rm || !config_.has_users_reward()) return nullptr;
  return [this](Group group, std::stop_token stop, std::function<void(Expected<Group>)> answer) {
    const std::string& own = group.samples.front().custom_rm_path;
    const int hook = place("reward", own.empty() ? config_.custom_rm_path : own);
    plugin::score_group(*hosts_, hook, reward_timeout_, std::move(group), std::move(stop),
                        std::move(answer));
  };
}

decltype(rollout::RolloutHooks::ask_sample_hook) Plugins::sample_hooks() {
  if (config_.rollout_sample_hook_path.empty()) return nullptr;
  std::vector<int> hooks;
  for (const std::string& path : config_.rollout_sample_hook_path)
    hooks.push_back(place("sample_hook", path));
  return [this, hooks](rollout::SampleInHook question, std::stop_token stop,
                       rollout::AnswerFn<Sample> answer) {
    plugin::call_sample_hooks(*hosts_, hooks, timeout_, std::move(question.sample),
                              {.rollout_id = rollout_id_, .is_evaluation = question.is_evaluation},
                              std::move(stop), std::move(answer));
  };
}

decltype(rollout::RolloutHooks::ask_filter) Plugins::filter() {
  if (!config::has_users_filter(config_)) return nullptr;
  const int hook = place("dynamic_filter", config_.dynamic_sampling_filter_path);
  return [this, hook](Group group, std::stop_token stop,
                      std::function<void(Expected<rollout::FilteredGroup>)> answer) {
    plugin::filter(*hosts_, hook, timeout_, std::move(group), std::move(stop),
                   [answer = std::move(answer)](Expected<plugin::Filtered> filtered) {
                     if (!filtered) return answer(failure(filtered.error().message));
                     answer(rollout::FilteredGroup{.group = std::move(filtered->group),
                                                   .verdict = std::move(filtered->verdict)});
                   });
  };
}

}  // namespace slime::loop
