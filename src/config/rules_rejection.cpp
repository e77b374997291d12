// Rejection sampling: supervised training on generated samples.

#include <fmt/format.h>

#include <cmath>

#include "config/rules.h"
#include "config/users_functions.h"

namespace slime::config {

void check_rejection(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const std::optional<int64_t> best = config.rejection_keep_best;
  const std::optional<double> least = config.rejection_min_reward;
  problems.require(best.value_or(1) >= 1,
                   fmt::format("--rejection-keep-best {}: should be at least 1", best.value_or(1)));
  problems.require(std::isfinite(least.value_or(0)),
                   fmt::format("--rejection-min-reward {}: should be a number", least.value_or(0)));
  const std::string flag = best ? "--rejection-keep-best" : "--rejection-min-reward";
  problems.require(
      config.imitates_samples || !(best || least),
      config.is_supervised()
          ? fmt::format("{}: chooses among generated samples, and --rollout-function-path {} reads "
                        "rows; leave one of the two out",
                        flag, config.rollout_function_path)
          : fmt::format(
                "{}: needs --loss-type sft_loss; --loss-type {} learns from bad samples too", flag,
                config.loss_type));
  if (!config.imitates_samples) return;
  problems.require(!config.has_users_post_process(),
                   fmt::format("--custom-reward-post-process-path {}: --loss-type sft_loss has no "
                               "advantages; leave it out",
                               config.custom_reward_post_process_path));
  if (best && *best >= config.n_samples_per_prompt && !has_users_rollout(config)) {
    flags.warnings.push_back(fmt::format(
        "--rejection-keep-best {}: a prompt has no more samples (--n-samples-per-prompt "
        "{}), so it rejects none",
        *best, config.n_samples_per_prompt));
  }
  const bool chooses = best || least || !config.rollout_sample_filter_path.empty() ||
                       !config.dynamic_sampling_filter_path.empty();
  if (!chooses) {
    flags.warnings.emplace_back(
        "--loss-type sft_loss: every sample is trained, whatever its reward; choose by "
        "--rejection-min-reward, --rejection-keep-best, --rollout-sample-filter-path or "
        "--dynamic-sampling-filter-path");
  }
}

}  // namespace slime::config
