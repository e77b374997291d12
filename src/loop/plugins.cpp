#include "loop/plugins.h"

#include "config/parse_flags.h"
#include "plugin/hosts.h"
#include "plugin/reward.h"

namespace slime::loop {
namespace {

constexpr int kReward = 0;  // its place among the hooks

plugin::HostsConfig hosts_config(const config::RunConfig& config,
                                 const std::filesystem::path& logs) {
  return {.python = config.plugin_python,
          .num_hosts = static_cast<int>(config.plugin_hosts),
          .logs = logs,
          .flags = config::flags_for_users(config),
          .hooks = {{.hook = "reward", .path = config.custom_rm_path}}};
}

}  // namespace

Plugins::Plugins(const config::RunConfig& config, const std::filesystem::path& logs)
    : reward_timeout_(config.reward_timeout_seconds.value_or(config.plugin_timeout_seconds)),
      hosts_(std::make_unique<plugin::Hosts>(hosts_config(config, logs))) {}

Plugins::~Plugins() = default;

void Plugins::tell_by(std::function<void(const std::string&)> tell) {
  hosts_->tell_by(std::move(tell));
}

rollout::AskScoreFn Plugins::reward() {
  return [this](Sample sample, std::stop_token stop, std::function<void(Expected<Sample>)> answer) {
    plugin::score(*hosts_, kReward, reward_timeout_, std::move(sample), std::move(stop),
                  std::move(answer));
  };
}

}  // namespace slime::loop
