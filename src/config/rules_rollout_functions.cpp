// Functions and classes of the user's that stand for a whole step: rollout, evaluation, data source.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "config/rules.h"
#include "config/users_functions.h"

namespace slime::config {
namespace {

constexpr double kMostGigabytes = 65536;

/// slime train-async: the function is called for the next step while one is trained.
void check_one_step_ahead(
    const ParsedFlags& flags,
    const std::function<void(bool, std::string_view, std::string_view)>& refuse) {
  const RunConfig& config = flags.config;
  refuse(config.colocate, "--colocate",
         "one step ahead the function draws while the trainer trains; where they take turns, use "
         "slime train");
  refuse(config.max_staleness != 1, fmt::format("--max-staleness {}", *config.max_staleness),
         "slime train-async calls the function one step ahead, so what it draws is one update old; "
         "use 1, or slime train for 0");
  refuse(config.update_mode == "interrupt", flags.how_said("--update-mode", "interrupt"),
         "requests are the function's own, and nobody asks again for those that are aborted; use "
         "drain or suspend");
  for (const std::string_view flag :
       {"--async-order", "--staleness-policy", "--async-buffer-size"}) {
    const auto alias = flags.said_by_alias.find(flag);
    const std::string_view said = flags.gives(flag) || alias == flags.said_by_alias.end()
                                      ? flag
                                      : std::string_view(alias->second);
    refuse(flags.says(flag), said, "there is no queue of groups; one step is sampled ahead, whole");
  }
}

}  // namespace

void complete_rollout_functions(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  config.imitates_samples = config.has_sft_loss() && !names_rows(config.rollout_function_path);
  // As the original's train_async.py: weights change between two calls of the function.
  const bool says_how = flags.says("--update-mode") || flags.says("--kv-on-update");
  if (config.train_async && has_users_rollout(config) && !says_how) config.update_mode = "drain";
  if (!flags.gives("--eval-function-path") && !is_built_in_rollout(config.rollout_function_path))
    config.eval_function_path = config.rollout_function_path;
}

void check_rollout_functions(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  problems.require(config.plugin_memory_gb >= 0 && config.plugin_memory_gb <= kMostGigabytes,
                   fmt::format("--plugin-memory-gb {:g}: should be from 0 (no limit) to {:g}",
                               config.plugin_memory_gb, kMostGigabytes));
  if (has_users_data_source(config)) {
    const bool has_rows = !config.prompt_data.empty() && config.streaming_data;
    problems.require(!has_rows,
                     fmt::format("--streaming-data and --data-source-path {}: rows are the class's "
                                 "business; leave one out",
                                 config.data_source_path));
  }
  if (!has_users_rollout(config)) {
    if (config.group_rm && config.custom_rm_path.empty()) {
      flags.warnings.emplace_back(
          "--group-rm has no effect without --custom-rm-path: a rule scores each sample by itself");
    }
    return;
  }
  const std::string& path = config.rollout_function_path;
  const auto refuse = [&](bool is_so, std::string_view flag, std::string_view why) {
    problems.require(!is_so, fmt::format("--rollout-function-path {} and {}: {}", path, flag, why));
  };
  if (config.train_async) check_one_step_ahead(flags, refuse);
  refuse(config.deterministic_schedule, "--deterministic-schedule",
         "rounds count tokens of the engine and do not wait for functions; leave one out");
  const bool has_own_order = std::ranges::any_of(
      users_functions(config), [](const auto& each) { return each.hook == "buffer_filter"; });
  refuse(has_own_order && !has_users_data_source(config), "--buffer-filter-path",
         "groups that wait are given to the function oldest first; for another order name a "
         "--data-source-path, whose class calls the filter");
}

}  // namespace slime::config
