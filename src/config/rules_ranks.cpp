// How the ranks that train divide the work (spec section 12.3).

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {
namespace {

constexpr int64_t kMostRanks = 4096;

/// The sizes of the axes. False: nothing can be computed from them.
bool check_sizes(const RunConfig& config, Problems& problems) {
  bool are_positive = true;
  for (const auto& [name, size] :
       {std::pair{"--tensor-model-parallel-size", config.tensor_model_parallel_size.get()},
        std::pair{"--pipeline-model-parallel-size", config.pipeline_model_parallel_size.get()},
        std::pair{"--context-parallel-size", config.context_parallel_size.get()},
        std::pair{"--expert-model-parallel-size", config.expert_model_parallel_size.get()},
        std::pair{"--expert-tensor-parallel-size", config.expert_tensor_size()},
        std::pair{"--actor-num-nodes", config.actor_num_nodes.get()},
        std::pair{"--actor-num-gpus-per-node", config.actor_num_gpus_per_node.get()}}) {
    const bool is_possible = size >= 1 && size <= kMostRanks;
    problems.require(is_possible,
                     fmt::format("{} {}: should be between 1 and {}", name, size, kMostRanks));
    are_positive &= is_possible;
  }
  problems.require(config.num_gpus_per_node.value_or(1) >= 1 &&
                       config.num_gpus_per_node.value_or(1) <= kMostRanks,
                   fmt::format("--num-gpus-per-node {}: should be between 1 and {}",
                               config.num_gpus_per_node.value_or(1), kMostRanks));
  problems.require(
      config.launcher == "auto" || config.launcher == "local" || config.launcher == "environment" ||
          config.launcher == "ray",
      fmt::format("--launcher {}: should be auto, local, environment or ray", config.launcher));
  problems.require(
      config.nodes_timeout_seconds > 0 && config.nodes_timeout_seconds <= 1e6,
      fmt::format("--nodes-timeout-seconds {:g}: should be above 0 and at most 1000000",
                  config.nodes_timeout_seconds));
  return are_positive;
}

void check_pipeline(const RunConfig& config, Problems& problems) {
  const int64_t stages = config.pipeline_model_parallel_size;
  for (const auto& [name, layers] :
       {std::pair{"--decoder-first-pipeline-num-layers", config.decoder_first_pipeline_num_layers},
        std::pair{"--decoder-last-pipeline-num-layers", config.decoder_last_pipeline_num_layers}}) {
    if (!layers) continue;
    problems.require(stages > 1, fmt::format("{} {}: needs --pipeline-model-parallel-size above 1",
                                             name, *layers));
    problems.require(*layers >= 1 && *layers <= 1'000'000,
                     fmt::format("{} {}: should be at least 1", name, *layers));
  }
  const int64_t chunks = config.pipeline_chunks();
  problems.require(
      chunks >= 1 && chunks <= 1024,
      fmt::format("--num-virtual-stages-per-pipeline-rank {}: should be at least 1", chunks));
  problems.require(chunks <= 1 || stages > 1,
                   fmt::format("--num-virtual-stages-per-pipeline-rank {}: needs "
                               "--pipeline-model-parallel-size above 1",
                               chunks));
  problems.require(
      stages <= 1 || !config.has_critic(),
      fmt::format("--pipeline-model-parallel-size {}: a critic has its output layer on "
                  "every rank so far; use 1 with --advantage-estimator ppo",
                  stages));
}

/// Micro-batches of a step, as many for each rank (train/schedule.h); pairs need not divide.
void check_steps(const RunConfig& config, Problems& problems) {
  const int64_t ranks = config.data_parallel_size(), group = config.micro_batch_group();
  const int64_t samples = *config.global_batch_size;
  if (ranks * group == 1 || config.is_preference()) return;
  const std::string groups =
      group == 1 ? "" : fmt::format(" x {} pipeline stages with virtual stages", group);
  problems.require(samples >= ranks * group,
                   fmt::format("--actor-num-gpus-per-node {}: --global-batch-size {} is less than "
                               "one sample for each of {} data-parallel ranks{}",
                               config.world_size(), samples, ranks, groups));
  problems.require(
      config.use_dynamic_batch_size || samples % (config.micro_batch_size * ranks * group) == 0,
      fmt::format(
          "--global-batch-size {}: should be a multiple of --micro-batch-size {} x {} ranks{}, "
          "or use --use-dynamic-batch-size",
          samples, config.micro_batch_size, ranks, groups));
}

}  // namespace

void check_ranks(const RunConfig& config, Problems& problems) {
  problems.require(config.distributed_timeout_minutes >= 1,
                   "--distributed-timeout-minutes: should be at least 1");
  problems.require(config.worker_timeout_seconds >= 1,
                   "--worker-timeout-seconds: should be at least 1");
  if (!check_sizes(config, problems)) return;
  check_pipeline(config, problems);
  const int64_t world = config.world_size(), together = config.model_parallel_size();
  problems.require(
      world % together == 0,
      fmt::format("--actor-num-gpus-per-node {}: should be a multiple of "
                  "--tensor-model-parallel-size {} x --pipeline-model-parallel-size {} x "
                  "--context-parallel-size {} = {}",
                  world, config.tensor_model_parallel_size, config.pipeline_model_parallel_size,
                  config.context_parallel_size, together));
  const int64_t stage = world / config.pipeline_model_parallel_size;
  const int64_t expert_ranks = config.expert_model_parallel_size * config.expert_tensor_size();
  problems.require(
      world % together != 0 || stage % expert_ranks == 0,
      fmt::format("--expert-model-parallel-size {} x --expert-tensor-parallel-size {} = {}: should "
                  "divide the {} ranks of a pipeline stage",
                  config.expert_model_parallel_size, config.expert_tensor_size(), expert_ranks,
                  stage));
  problems.require(
      config.tensor_model_parallel_size == 1 || config.recompute_granularity != "selective",
      fmt::format("--recompute-granularity selective: computes products again that "
                  "--tensor-model-parallel-size {} has to sum between; use full, or 1",
                  config.tensor_model_parallel_size));
  if (world % together != 0 || config.micro_batch_size < 1 || *config.global_batch_size < 1) return;
  check_steps(config, problems);
}

}  // namespace slime::config
