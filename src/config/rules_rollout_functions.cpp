// Functions and classes of the user's that stand for a whole step: rollout, evaluation, data source.

#include <fmt/format.h>

#include <algorithm>

#include "config/rules.h"
#include "config/users_functions.h"

namespace slime::config {
namespace {

constexpr double kMostGigabytes = 65536;

}  // namespace

void complete_rollout_functions(ParsedFlags& flags) {
  RunConfig& config = flags.config;
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
  if (!has_users_rollout(config)) return;
  const std::string& path = config.rollout_function_path;
  const auto refuse = [&](bool is_so, std::string_view flag, std::string_view why) {
    problems.require(!is_so, fmt::format("--rollout-function-path {} and {}: {}", path, flag, why));
  };
  refuse(
      config.train_async, "slime train-async",
      "generation is a stream there, and this function draws one step after the other; use slime "
      "train");
  refuse(config.deterministic_schedule, "--deterministic-schedule",
         "rounds count tokens of the engine and do not wait for functions; leave one out");
  const bool has_own_order = std::ranges::any_of(
      users_functions(config), [](const auto& each) { return each.hook == "buffer_filter"; });
  refuse(has_own_order && !has_users_data_source(config), "--buffer-filter-path",
         "groups that wait are given to the function oldest first; for another order name a "
         "--data-source-path, whose class calls the filter");
}

}  // namespace slime::config
