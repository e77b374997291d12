// Ranks and batches.

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {

namespace {

/// Rules of several data-parallel ranks (spec section 12.3).
void check_ranks(const RunConfig& config, Problems& problems) {
  const int64_t ranks = config.actor_num_gpus_per_node;
  problems.require(ranks >= 1 && ranks <= 64,
                   fmt::format("--actor-num-gpus-per-node {}: should be between 1 and 64", ranks));
  problems.require(
      ranks == 1 || config.device == "cpu",
      fmt::format("--actor-num-gpus-per-node {} --device {}: several ranks train on the "
                  "CPU for now; use 1 with a GPU",
                  ranks, config.device));
  problems.require(config.distributed_timeout_minutes >= 1,
                   "--distributed-timeout-minutes: should be at least 1");
  problems.require(config.worker_timeout_seconds >= 1,
                   "--worker-timeout-seconds: should be at least 1");
  if (ranks <= 1 || config.micro_batch_size < 1 || *config.global_batch_size < 1) return;
  const int64_t samples = *config.global_batch_size * (config.is_preference() ? 2 : 1);
  problems.require(config.is_preference() || samples >= ranks,
                   fmt::format("--actor-num-gpus-per-node {}: --global-batch-size {} is less than "
                               "one sample for each rank",
                               ranks, *config.global_batch_size));
  const bool is_static = !config.use_dynamic_batch_size && !config.is_preference();
  problems.require(
      !is_static || samples % (config.micro_batch_size * ranks) == 0,
      fmt::format(
          "--global-batch-size {}: should be a multiple of --micro-batch-size {} x {} ranks, "
          "or use --use-dynamic-batch-size",
          *config.global_batch_size, config.micro_batch_size, ranks));
}

}  // namespace

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
    }
  }
  if (!config.global_batch_size) config.global_batch_size = samples;
  problems.require(
      *config.global_batch_size >= 1 && *config.global_batch_size <= samples,
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
  if (config.recompute_activations && config.recompute_granularity.empty())
    config.recompute_granularity = "selective";
  problems.require(config.micro_batch_size >= 1, "--micro-batch-size: should be at least 1");
  for (const auto& [name, size] :
       {std::pair{"--tensor-model-parallel-size", config.tensor_model_parallel_size},
        std::pair{"--pipeline-model-parallel-size", config.pipeline_model_parallel_size},
        std::pair{"--context-parallel-size", config.context_parallel_size},
        std::pair{"--expert-model-parallel-size", config.expert_model_parallel_size},
        std::pair{"--expert-tensor-parallel-size", config.expert_tensor_parallel_size},
        std::pair{"--actor-num-nodes", config.actor_num_nodes}}) {
    problems.require(
        size == 1,
        fmt::format("{} {}: ranks are data-parallel and on one host for now; use 1", name, size));
  }
  check_ranks(config, problems);
}

}  // namespace slime::config
