#include "loop/session_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/own_command.h"
#include "loop/changed_settings.h"

namespace slime::loop {
namespace {

constexpr auto kMayDiffer = std::to_array<std::string_view>(
    {// Places, and where the run begins.
     "--run-dir", "--save", "--load", "--ckpt-step", "--start-rollout-id", "--finetune",
     "--no-load-optim", "--no-load-rng", "--overwrite", "--dry-run", "--allow-other-experiment",
     "--allow-unknown-flags", "--keep-checkpoints",
     // How long it is, and what happens when.
     "--num-rollout", "--num-epoch", "--save-interval", "--eval-interval",
     "--skip-eval-before-train",
     // The trainer's layout.
     "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size",
     "--expert-model-parallel-size", "--expert-tensor-parallel-size",
     "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
     "--num-virtual-stages-per-pipeline-rank", "--allgather-cp", "--sequence-parallel",
     "--num-threads", "--num-gpus-per-node",
     // Its micro-batches and its memory.
     "--micro-batch-size", "--use-dynamic-batch-size", "--max-tokens-per-gpu",
     "--log-probs-max-tokens-per-gpu", "--log-probs-chunk-size", "--balance-data",
     "--balance-by-flops", "--offload-train", "--no-offload-train", "--optimizer-cpu-offload",
     "--use-precision-aware-optimizer", "--overlap-cpu-optimizer-d2h-h2d",
     "--use-distributed-optimizer", "--train-env-vars", "--megatron-config-path", "--ckpt-format",
     "--async-save", "--async-strategy",
     // What is lost and watched.
     "--use-fault-tolerance", "--max-restarts", "--rollout-cleanup-timeout",
     "--rollout-session-minutes", "--rollout-health-check-interval",
     "--rollout-health-check-timeout", "--rollout-health-check-first-wait",
     "--worker-timeout-seconds", "--use-wandb", "--use-tensorboard"});

/// Of these, what says where the run begins: what there is without a checkpoint began there.
constexpr auto kBeginning = std::to_array<std::string_view>(
    {"--load", "--ckpt-step", "--start-rollout-id", "--finetune", "--no-load-optim"});

constexpr auto kPrefixes = std::to_array<std::string_view>(
    {"--actor-num-", "--critic-num-", "--wandb-", "--tensorboard-", "--tb-", "--profile-",
     "--profiling-", "--distributed-", "--exit-", "--recompute-", "--ci-"});

}  // namespace

bool may_differ_in_session(std::string_view flag) {
  return std::ranges::find(kMayDiffer, flag) != kMayDiffer.end() ||
         std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return flag.starts_with(prefix); });
}

bool may_differ_before_checkpoint(std::string_view flag) {
  return may_differ_in_session(flag) && std::ranges::find(kBeginning, flag) == kBeginning.end();
}

void check_session_settings(const json::object& left, const json::object& now,
                            const std::string& id) {
  std::string differences;
  for (const ChangedSetting& change : changed_settings(left, now)) {
    if (may_differ_in_session(change.flag)) continue;
    differences += fmt::format("\n  {}  {} -> {}", change.flag, change.before, change.now);
  }
  if (differences.empty()) return;
  throw ConfigError(
      fmt::format("--rollout-session-id {}: its engines were started by a command with other "
                  "settings, and only "
                  "the trainer's layout, micro-batches, places, length and intervals may "
                  "change:{}\nThe engines "
                  "wait on. Give them their settings, or end them with {}",
                  id, differences, own_command("session end " + id)));
}

}  // namespace slime::loop
