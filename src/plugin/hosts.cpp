#include "plugin/hosts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"

namespace slime::plugin {

Hosts::Hosts(const HostsConfig& config) : num_shared_hooks_(static_cast<int>(config.hooks.size())) {
  if (config.hooks.empty() && config.hooks_of_first.empty()) return;
  std::filesystem::create_directories(config.logs);
  for (int i = 0; i < config.num_hosts; ++i) {
    std::vector<Hook> hooks = config.hooks;
    if (i == 0)
      hooks.insert(hooks.end(), config.hooks_of_first.begin(), config.hooks_of_first.end());
    hosts_.push_back(std::make_unique<Host>(HostConfig{
        .python = config.python,
        .number = i,
        .logs = config.logs,
        .flags = config.flags,
        .hooks = std::move(hooks),
        .memory_bytes = config.memory_bytes,
        .hurries = config.hurries,
        .patience = config.patience,
        .on_stuck = config.on_stuck,
        .repeats_lost_calls = config.repeats_lost_calls,
        .on_question = config.on_question,
        .on_output =
            [this](const std::filesystem::path& log) {
              const auto all = hosts_.size() > 1 ? log.parent_path() / "host-*.log" : log;
              tell_once("what users' functions print is in " + all.string());
            },
        .tell = [this](const std::string& text) { tell(text); }}));
  }
  for (const auto& host : hosts_) {
    const std::vector<std::string> problems = host->problems();
    if (!problems.empty()) throw ConfigError(fmt::format("{}", fmt::join(problems, "\n")));
  }
}

void Hosts::call(Call call) {
  if (call.hook >= num_shared_hooks_) return hosts_.front()->call(std::move(call));
  const auto least = std::ranges::min_element(
      hosts_, {}, [](const std::unique_ptr<Host>& host) { return host->num_open_calls(); });
  (*least)->call(std::move(call));
}

void Hosts::set_aborted(bool is_aborted) {
  for (const auto& host : hosts_) host->set_aborted(is_aborted);
}

void Hosts::tell_by(std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
  for (const std::string& text : untold_) tell_(text);
  untold_.clear();
}

void Hosts::tell(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (tell_) {
    tell_(text);
  } else {
    untold_.push_back(text);
  }
}

void Hosts::tell_once(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(told_once_, text) != told_once_.end()) return;
    told_once_.push_back(text);
  }
  tell(text);
}

}  // namespace slime::plugin
