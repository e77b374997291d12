// Batches.

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {

void check_batches(RunConfig& config, Problems& problems) {
  const int64_t samples = config.samples_per_rollout();
  if (config.num_steps_per_rollout) {
    problems.require(*config.num_steps_per_rollout >= 1,
                     "--num-steps-per-rollout: should be at least 1");
    if (*config.num_steps_per_rollout >= 1) {
      const int64_t derived = samples / *config.num_steps_per_rollout;
      problems.require(
          !config.global_batch_size || *config.global_batch_size == derived,
          fmt::format(
              "--global-batch-size {} contradicts --num-steps-per-rollout {}, which makes it {}",
              config.global_batch_size.value_or(0), *config.num_steps_per_rollout, derived));
      config.global_batch_size = derived;
      config.global_batch_size.stems_from(config.num_steps_per_rollout);
    }
  }
  if (!config.global_batch_size) config.global_batch_size = samples;
  const bool is_given_or_made = samples >= 1;  // else what it is made of is refused by its own name
  problems.require(
      !is_given_or_made || (*config.global_batch_size >= 1 && *config.global_batch_size <= samples),
      fmt::format("--global-batch-size {}: should be between 1 and --rollout-batch-size x "
                  "--n-samples-per-prompt = {}",
                  *config.global_batch_size, samples));
  problems.require(*config.global_batch_size < 1 || samples % *config.global_batch_size == 0,
                   fmt::format("--global-batch-size {}: {} samples per rollout do not divide by "
                               "it, the rest would never be trained",
                               *config.global_batch_size, samples));
  problems.require(!config.use_dynamic_batch_size || config.max_tokens_per_gpu.value_or(0) > 0,
                   "--use-dynamic-batch-size: needs --max-tokens-per-gpu");
  problems.require(!config.balance_by_flops || config.use_dynamic_batch_size,
                   "--balance-by-flops: needs --use-dynamic-batch-size");
  if (config.balance_by_flops) config.balance_data = true;

  problems.require(config.micro_batch_size >= 1, "--micro-batch-size: should be at least 1");
  check_ranks(config, problems);
}

}  // namespace slime::config
