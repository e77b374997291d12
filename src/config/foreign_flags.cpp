#include "config/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "config/dotted_names.h"
#include "config/flag_table.h"
#include "config/foreign_name.h"

namespace slime::config {
namespace {

constexpr std::string_view kUpload = "slime export RUN OUT, then hf upload NAME OUT";
constexpr std::string_view kOwnEnd = "a break in a loop of Python (docs/python.md)";
constexpr std::string_view kQuantised =
    "nothing: weights are trained in --dtype bfloat16, float16 or float32";

// One file because it is one table of names, and the order in which they are looked up.
constexpr Foreign kForeign[] = {
    // Optimizer and schedule.
    {"learning-rate", "--lr"},
    {"actor-learning-rate", "--lr"},
    {"actor-lr", "--lr"},
    {"critic-learning-rate", "lr of the role critic in --megatron-config-path"},
    {"critic-lr", "lr of the role critic in --megatron-config-path"},
    {"min-learning-rate", "--min-lr"},
    {"min-lr-ratio", "--min-lr, a rate and not a share"},
    {"lr-scheduler", "--lr-decay-style"},
    {"lr-scheduler-type", "--lr-decay-style"},
    {"warmup-style", "--lr-decay-style"},
    {"warmup-ratio", "--lr-warmup-fraction"},
    {"lr-warmup-ratio", "--lr-warmup-fraction"},
    {"lr-warmup-steps", "--lr-warmup-iters"},
    {"lr-warmup-steps-ratio", "--lr-warmup-fraction"},
    {"warmup-steps", "--lr-warmup-iters"},
    {"warmup-iters", "--lr-warmup-iters"},
    {"adam-epsilon", "--adam-eps"},
    {"adam-betas", "--adam-beta1 and --adam-beta2"},
    {"beta1", "--adam-beta1"},
    {"beta2", "--adam-beta2"},
    {"l2", "--weight-decay"},
    {"optim", "--optimizer"},
    {"max-grad-norm", "--clip-grad"},
    {"max-norm", "--clip-grad"},
    {"grad-clip", "--clip-grad"},
    {"gradient-clip-val", "--clip-grad"},
    {"gradient-clipping", "--clip-grad"},
    // Objective.
    {"beta", "--kl-loss-coef with --use-kl-loss; of preferences --dpo-beta"},
    {"init-kl-coef", "--kl-coef, or --use-kl-loss --kl-loss-coef"},
    {"kl-estimator", "--kl-loss-type"},
    {"kl-penalty", "--kl-loss-type"},
    {"epsilon", "--eps-clip"},
    {"epsilon-low", "--eps-clip"},
    {"epsilon-high", "--eps-clip-high"},
    {"eps-clip-low", "--eps-clip"},
    {"eps-clip-low-high", "--eps-clip and --eps-clip-high"},
    {"clip-ratio", "--eps-clip"},
    {"clip-ratio-low", "--eps-clip"},
    {"clip-ratio-high", "--eps-clip-high"},
    {"clip-ratio-c", "--eps-clip-c"},
    {"cliprange", "--eps-clip"},
    {"cliprange-value", "--value-clip"},
    {"lam", "--lambd"},
    {"lambda", "--lambd"},
    {"gae-lambda", "--lambd"},
    {"discount", "--gamma"},
    {"adv-estimator", "--advantage-estimator"},
    {"algorithm", "--advantage-estimator"},
    {"entropy-coeff", "--entropy-coef"},
    {"entropy-loss-coef", "--entropy-coef"},
    {"loss-agg-mode", "--calculate-per-token-loss, or --policy-loss-divisor"},
    {"scale-rewards", "--disable-grpo-std-normalization, which leaves the division out"},
    {"norm-adv-by-std-in-grpo", "--disable-grpo-std-normalization, which leaves the division out"},
    {"num-iterations", "--num-steps-per-rollout"},
    {"ppo-epochs", "--num-steps-per-rollout"},
    {"ppo-mini-batch-size", "--global-batch-size, in responses"},
    {"ppo-max-token-len-per-gpu", "--max-tokens-per-gpu"},
    {"mask-truncated-completions", "--overlong-buffer-len, or a function of yours"},
    {"reward-funcs", "--rm-type, or --custom-rm-path"},
    {"reward-function", "--rm-type, or --custom-rm-path"},
    {"reward-fn", "--rm-type, or --custom-rm-path"},
    {"reward-model", "--rm-type remote_rm --rm-url"},
    {"reward-model-path", "--rm-type remote_rm --rm-url"},
    {"reward-pretrain", "--rm-type remote_rm --rm-url"},
    {"remote-rm-url", "--rm-type remote_rm --rm-url"},
    {"ref-model", "--ref-load"},
    {"ref-pretrain", "--ref-load"},
    {"critic-pretrain", "--critic-load"},
    {"teacher-model", "--use-opd --opd-type megatron --opd-teacher-load"},
    {"sync-ref-model", "--ref-update-interval"},
    {"ref-model-sync-steps", "--ref-update-interval"},
    // Length of a run and batches.
    {"max-steps", "--num-rollout"},
    {"num-steps", "--num-rollout"},
    {"train-iters", "--num-rollout"},
    {"total-steps", "--num-rollout"},
    {"total-training-steps", "--num-rollout"},
    {"max-train-steps", "--num-rollout"},
    {"num-train-steps", "--num-rollout"},
    {"num-iters", "--num-rollout"},
    {"epochs", "--num-epoch"},
    {"num-epochs", "--num-epoch"},
    {"max-epochs", "--num-epoch"},
    {"num-train-epochs", "--num-epoch"},
    {"total-epochs", "--num-epoch"},
    {"num-episodes", "--num-epoch"},
    {"batch-size", "--rollout-batch-size prompts and --global-batch-size responses"},
    {"train-batch-size", "--global-batch-size"},
    {"micro-train-batch-size", "--micro-batch-size"},
    {"micro-rollout-batch-size", "--sglang-max-running-requests"},
    {"per-device-train-batch-size", "--micro-batch-size; --global-batch-size counts a whole step"},
    {"per-device-eval-batch-size", "--sglang-max-running-requests"},
    {"gradient-accumulation-steps", "--global-batch-size over --micro-batch-size"},
    {"gen-batch-size", "--rollout-batch-size"},
    {"num-generations", "--n-samples-per-prompt"},
    {"num-samples-per-prompt", "--n-samples-per-prompt"},
    {"n-samples", "--n-samples-per-prompt"},
    {"num-rollouts", "--num-rollout"},
    {"rollout-n", "--n-samples-per-prompt"},
    {"group-size", "--n-samples-per-prompt"},
    {"use-dynamic-bsz", "--use-dynamic-batch-size"},
    {"packing", "--use-dynamic-batch-size with --max-tokens-per-gpu"},
    {"packing-samples", "--use-dynamic-batch-size with --max-tokens-per-gpu"},
    {"max-tokens-per-batch", "--max-tokens-per-gpu"},
    {"gradient-checkpointing", "--recompute-granularity full"},
    {"enable-gradient-checkpointing", "--recompute-granularity full"},
    {"activation-checkpointing", "--recompute-granularity full"},
    // Sampling.
    {"temperature", "--rollout-temperature"},
    {"top-p", "--rollout-top-p"},
    {"top-k", "--rollout-top-k"},
    {"max-new-tokens", "--rollout-max-response-len"},
    {"max-tokens", "--rollout-max-response-len"},
    {"max-completion-length", "--rollout-max-response-len"},
    {"max-response-length", "--rollout-max-response-len"},
    {"response-length", "--rollout-max-response-len"},
    {"generate-max-len", "--rollout-max-response-len"},
    {"max-prompt-length", "--rollout-max-prompt-len"},
    {"prompt-max-len", "--rollout-max-prompt-len"},
    {"max-length", "--rollout-max-context-len"},
    {"max-len", "--rollout-max-context-len"},
    {"max-seq-len", "--rollout-max-context-len"},
    {"max-seq-length", "--rollout-max-context-len"},
    {"max-model-len", "--sglang-context-length"},
    {"cutoff-len", "--rollout-max-context-len"},
    {"stop", "--rollout-stop"},
    {"use-vllm", kOwnEngine},
    {"vllm-mode", "--colocate, or --rollout-num-gpus for engines apart"},
    {"vllm-num-engines", "--rollout-num-gpus over --rollout-num-gpus-per-engine"},
    {"vllm-tensor-parallel-size", "--rollout-num-gpus-per-engine"},
    {"vllm-gpu-memory-utilization", "--sglang-mem-fraction-static"},
    {"gpu-memory-utilization", "--sglang-mem-fraction-static"},
    {"mem-fraction-static", "--sglang-mem-fraction-static"},
    {"rollout-backend", kOwnEngine},
    {"colocate-all-models", "--colocate"},
    {"async-train", "slime train-async"},
    // Model, data, files.
    {"model", "--hf-checkpoint"},
    {"model-name", "--hf-checkpoint"},
    {"model-name-or-path", "--hf-checkpoint"},
    {"model-path", "--hf-checkpoint"},
    {"base-model", "--hf-checkpoint"},
    {"pretrain", "--hf-checkpoint"},
    {"tokenizer", "--hf-checkpoint, whose folder has the tokenizer"},
    {"tokenizer-path", "--hf-checkpoint, whose folder has the tokenizer"},
    {"tokenizer-model", "--hf-checkpoint, whose folder has the tokenizer"},
    {"dataset", "--prompt-data"},
    {"dataset-name", "--prompt-data"},
    {"dataset-path", "--prompt-data"},
    {"train-file", "--prompt-data"},
    {"train-files", "--prompt-data"},
    {"train-data", "--prompt-data"},
    {"data-path", "--prompt-data"},
    {"eval-dataset", "--eval-prompt-data NAME PATH"},
    {"eval-data", "--eval-prompt-data NAME PATH"},
    {"val-files", "--eval-prompt-data NAME PATH"},
    {"test-data", "--eval-prompt-data NAME PATH"},
    {"prompt-key", "--input-key"},
    {"prompt-column", "--input-key"},
    {"dataset-text-field", "--input-key"},
    {"output-key", "--label-key"},
    {"answer-key", "--label-key"},
    {"shuffle", "--rollout-shuffle"},
    {"max-samples", "--prompt-data FILE@[0:N]"},
    {"eval-only", "slime eval MODEL --data NAME=FILE"},
    {"do-eval", "--eval-interval; without training slime eval"},
    {"eval-steps", "--eval-interval"},
    {"eval-freq", "--eval-interval"},
    {"eval-every", "--eval-interval"},
    {"test-freq", "--eval-interval"},
    {"save-steps", "--save-interval"},
    {"save-freq", "--save-interval"},
    {"save-every", "--save-interval"},
    {"save-total-limit", "--keep-checkpoints"},
    {"max-ckpt-num", "--keep-checkpoints"},
    {"output-dir", "--run-dir, or --save for checkpoints alone"},
    {"output-path", "--run-dir, or --save for checkpoints alone"},
    {"save-dir", "--save"},
    {"save-path", "--save"},
    {"ckpt-path", "--save"},
    {"checkpoint-dir", "--save"},
    {"default-local-dir", "--save"},
    {"resume", "--load; a run goes on by itself in its --run-dir"},
    {"resume-from-checkpoint", "--load; a run goes on by itself in its --run-dir"},
    {"load-checkpoint", "--load; a run goes on by itself in its --run-dir"},
    {"push-to-hub", kUpload},
    {"hub-model-id", kUpload},
    {"early-stopping", kOwnEnd},
    {"early-stopping-patience", kOwnEnd},
    {"overwrite-output-dir", "--overwrite"},
    {"logging-dir", "--run-dir"},
    {"logging-steps", "nothing: every step is logged"},
    {"log-interval", "nothing: every step is logged"},
    {"run-name", "--tracker-run-name"},
    {"experiment-name", "--tracker-run-name"},
    {"project-name", "--tracker-project"},
    {"wandb-run-name", "--wandb-group"},
    {"wandb-entity", "--wandb-team"},
    // Precision and devices.
    {"torch-dtype", "--dtype"},
    {"precision", "--dtype"},
    {"mixed-precision", "--dtype"},
    {"param-dtype", "--dtype"},
    {"load-in-4bit", kQuantised},
    {"load-in-8bit", kQuantised},
    {"quantization", kQuantised},
    {"quantization-bit", kQuantised},
    {"flash-attn", "nothing: attention never holds the whole matrix"},
    {"attn-implementation", "nothing: attention never holds the whole matrix"},
    {"tensor-parallel-size", "--tensor-model-parallel-size"},
    {"tp", "--tensor-model-parallel-size"},
    {"tp-size", "--tensor-model-parallel-size"},
    {"pipeline-parallel-size", "--pipeline-model-parallel-size"},
    {"pp", "--pipeline-model-parallel-size"},
    {"expert-parallel-size", "--expert-model-parallel-size"},
    {"ring-attn-size", "--context-parallel-size"},
    {"sequence-parallel-size", "--context-parallel-size"},
    {"ulysses-sequence-parallel-size", "--context-parallel-size"},
    {"cp", "--context-parallel-size"},
    {"nnodes", "--actor-num-nodes"},
    {"num-nodes", "--actor-num-nodes"},
    {"num-gpus", "--actor-num-gpus-per-node"},
    {"n-gpus-per-node", "--actor-num-gpus-per-node"},
    {"nproc-per-node", "--actor-num-gpus-per-node"},
    {"zero-stage", kRanks},
    {"deepspeed", kRanks},
    {"fsdp", kRanks},
    {"fsdp-config", kRanks},
    {"adam-offload", "--optimizer-cpu-offload"},
    {"cpu-offload", "--optimizer-cpu-offload"},
    {"random-seed", "--seed"},
    {"data-seed", "--rollout-seed"},
    {"threads", "--num-threads"},
    // Adapters.
    {"use-lora", kAdapters},
    {"use-qlora", "--lora-rank, beside weights of 16 bits"},
    {"use-dora", "--lora-rank; magnitudes are not trained"},
    {"lora", kAdapters},
    {"lora-target", kAdapters},
    {"lora-path", kAdapters},
    {"peft-config", kAdapters},
    {"finetuning-type", kAdapters},
};

/// "--Learning_Rate" -> "learning-rate".
std::string bare(std::string_view flag) {
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  for (char& c : name) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

constexpr std::string_view kSubjects[] = {
    // the objective
    "loss", "kl", "clip", "adv", "advantage", "advantages", "estimator", "reward", "rewards", "rm",
    "beta", "gamma", "lambda", "lam", "entropy", "objective", "eps", "epsilon", "ppo", "grpo",
    "dpo", "tis", "mis", "rs", "opd", "opsm", "critic", "value", "ref", "teacher", "penalty",
    "norm", "normalize", "normalization", "coef", "coeff", "mask", "score", "pg", "temperature",
    // the optimizer
    "lr", "learning", "rate", "optim", "optimizer", "adam", "adamw", "muon", "sgd", "decay",
    "warmup", "momentum", "grad", "gradient", "scheduler", "batch", "epoch", "epochs", "steps",
    // the data
    "data", "dataset", "prompt", "prompts", "input", "label", "labels", "template", "sample",
    "samples", "shuffle", "tool", "tools",
    // adapters
    "lora", "qlora", "dora", "peft", "adapter", "adapters", "freeze", "finetuning",
    // precision
    "precision", "dtype", "fp4", "fp8", "fp16", "bf16", "fp32", "mxfp8", "int4", "int8", "4bit",
    "8bit", "quant", "quantization", "quantize"};

bool has_subject(std::string_view flag) {
  const std::string name = bare(flag);
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const std::size_t end = std::min(name.find_first_of("-.", begin), name.size());
    const std::string_view word = std::string_view(name).substr(begin, end - begin);
    if (std::ranges::find(kSubjects, word) != std::end(kSubjects)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::optional<std::string_view> our_words_for(std::string_view flag) {
  const std::string name = bare(flag);
  const auto found = std::ranges::find(kForeign, name, &Foreign::name);
  if (found != std::end(kForeign)) return found->ours;
  if (name.starts_with("lora-") || name.starts_with("peft-")) return kAdapters;
  return std::nullopt;
}

bool speaks_of_training(std::string_view flag) {
  if (has_subject(flag)) return true;
  const auto meant = nearest_flag(flag);  // --optimiser, --fp17
  return meant && has_subject(*meant);
}

namespace {

/// Of "actor.adam.lr": by its end, else by its last part.
std::string hint_for_key(const std::string& key) {
  if (const auto ours = our_words_for_dotted(key)) return fmt::format("; here it is {}", *ours);
  if (key.find(".lora.") != std::string::npos) return fmt::format("; here it is {}", kAdapters);
  const std::string last = key.substr(key.rfind('.') + 1);  // of no dot, all of it
  if (const auto ours = our_words_for(last)) return fmt::format("; here it is {}", *ours);
  return find_flag("--" + last) != nullptr ? fmt::format("; here it is --{}", last) : "";
}

}  // namespace

std::string hint_for_unknown(const std::string& flag) {
  if (find_flag("--" + bare(flag)) != nullptr)  // --use_tis
    return fmt::format("; did you mean --{}?", bare(flag));
  if (const auto ours = our_words_for(flag)) return fmt::format("; here it is {}", *ours);
  if (const std::string name = bare(flag); name.find('.') != std::string::npos)
    return hint_for_key(name);
  const auto nearest = nearest_flag(flag);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

std::string hint_for_word(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return "";
  return hint_for_key(bare(std::string_view(word).substr(0, equals)));
}

}  // namespace slime::config
