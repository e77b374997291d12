#include "config/dotted_names.h"

#include <algorithm>
#include <string>

#include "config/foreign_name.h"

namespace slime::config {
namespace {

constexpr std::string_view kJudge = "--rm-type remote_rm --rm-url";

constexpr Foreign kDotted[] = {
    {"data.train-batch-size", "--rollout-batch-size, in prompts"},
    {"data.gen-batch-size", "--over-sampling-batch-size, in prompts"},
    {"data.val-batch-size", "--sglang-max-running-requests"},
    {"reward-model.path", "--rm-type remote_rm --rm-url"},
    {"reward-model.model.path", "--rm-type remote_rm --rm-url"},
    {"reward-model.enable", "--rm-type remote_rm --rm-url"},
    {"custom-reward-function.path", "--custom-rm-path"},
    {"custom-reward-function.name", "--custom-rm-path FILE.py:NAME"},
    {"critic.model.path", "--critic-load"},
    {"critic.optim.lr", "lr of the role critic in --megatron-config-path"},
    {"model.path", "--hf-checkpoint"},
    {"model.lora-rank", "--lora-rank"},
    {"model.lora-alpha", "--lora-alpha"},
    {"model.target-modules", "--target-modules"},
    {"model.exclude-modules", "--exclude-modules"},
    {"model.lora-adapter-path", "--lora-adapter-path"},
    {"lora.rank", "--lora-rank"},
    {"lora.alpha", "--lora-alpha"},
    {"lora.dropout", "--lora-dropout"},
    {"lora.target-modules", "--target-modules"},
    {"lora.exclude-modules", "--exclude-modules"},
    {"lora.adapter-path", "--lora-adapter-path"},
    {"rollout.n", "--n-samples-per-prompt"},
    {"rollout.name", kOwnEngine},
    {"rollout.tensor-model-parallel-size", "--rollout-num-gpus-per-engine"},
    {"val-kwargs.n", "--n-samples-per-eval-prompt"},
    {"val-kwargs.temperature", "--eval-temperature"},
    {"val-kwargs.top-p", "--eval-top-p"},
    {"val-kwargs.top-k", "--eval-top-k"},
    {"actor.strategy", kRanks},
    {"critic.strategy", kRanks},
    // OpenRLHF since 0.10.
    {"actor.model-name-or-path", "--hf-checkpoint"},
    {"critic.model-name-or-path", "--critic-load"},
    {"reward.model-name-or-path", kJudge},
    {"reward.remote-url", kJudge},
    {"data.prompt-dataset", "--prompt-data"},
    {"critic.adam.lr", "lr of the role critic in --megatron-config-path"},
    {"adam.betas", "--adam-beta1 and --adam-beta2"},
    {"adam.eps", "--adam-eps"},
    {"rollout.batch-size", "--rollout-batch-size"},
    {"rollout.vllm-generate-batch-size", "--over-sampling-batch-size"},
    {"rollout.micro-batch-size", "--sglang-max-running-requests"},
    {"train.batch-size", "--global-batch-size"},
    {"kl.init-coef", "--kl-coef, or --use-kl-loss --kl-loss-coef"},
    {"kl.use-loss", "--use-kl-loss"},
    {"kl.estimator", "--kl-loss-type"},
    {"advantage.estimator", "--advantage-estimator"},
    {"advantage.no-std-norm", "--disable-grpo-std-normalization"},
    {"advantage.is-correction-enable", "--use-tis"},
    {"actor.dual-clip", "--eps-clip-c"},
    {"algo.dynamic-filtering-enable", "--dynamic-sampling-filter-path"},
    {"train.colocate-all", "--colocate"},
    {"train.async-enable", "slime train-async"},
    {"train.partial-rollout-enable", "--partial-rollout"},
    {"train.dynamic-batch-enable", "--use-dynamic-batch-size"},
    {"train.agent-func-path", "--custom-generate-function-path"},
    {"vllm.num-engines", "--rollout-num-gpus over --rollout-num-gpus-per-engine"},
    {"vllm.tensor-parallel-size", "--rollout-num-gpus-per-engine"},
    {"actor.gradient-checkpointing-enable", "--recompute-granularity full"},
    {"actor.num-nodes", "--actor-num-nodes"},
    {"actor.num-gpus-per-node", "--actor-num-gpus-per-node"},
    {"eval.steps", "--eval-interval"},
    {"eval.dataset", "--eval-prompt-data NAME PATH"},
    {"eval.temperature", "--eval-temperature"},
    {"eval.n-samples-per-prompt", "--n-samples-per-eval-prompt"},
    {"wandb.project", "--wandb-project"},
    {"wandb.group", "--wandb-group"},
};

/// First parts of verl's words.
constexpr std::string_view kRootsOfVerl[] = {"actor_rollout_ref",
                                             "algorithm",
                                             "critic",
                                             "custom_reward_function",
                                             "data",
                                             "global_profiler",
                                             "ray_init",
                                             "ray_kwargs",
                                             "reward",
                                             "reward_model",
                                             "reward_manager",
                                             "transfer_queue",
                                             "trainer"};

}  // namespace

std::optional<std::string_view> our_words_for_dotted(std::string_view key) {
  for (const Foreign& each : kDotted)
    if (key == each.name || key.ends_with("." + std::string(each.name))) return each.ours;
  return std::nullopt;
}

bool is_word_of_verl(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('+'), word.size()));
  const std::string_view key = word.substr(0, word.find('='));
  const std::string_view first = key.substr(0, key.find('.'));
  return key.size() < word.size() && first.size() < key.size() &&
         std::ranges::find(kRootsOfVerl, first) != std::end(kRootsOfVerl);
}

}  // namespace slime::config
