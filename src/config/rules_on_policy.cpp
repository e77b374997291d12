/// --true-on-policy: where engine and trainer compute the same bits, and what is left out there.

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {
namespace {

constexpr std::string_view kTrueOnPolicy = "--true-on-policy";

/// What kernels in the trainer's order lack on a GPU (docs/decisions/0168-training-arithmetic.md).
void check_on_gpu(const RunConfig& config, Problems& problems) {
  const auto refuse = [&](bool is_so, const std::string& why) {
    problems.require(!is_so, fmt::format("{}: {}", kTrueOnPolicy, why));
  };
  refuse(config.device == "hip",
         "engine and trainer add in different orders on AMD's GPUs; use --device cpu, or leave it "
         "out");
  if (config.device != "cuda") return;
  refuse(config.verify_tokens() == 0,
         "a GPU decodes in another order than it trains; leave --rollout-verify-tokens 0 out");
  refuse(
      config.dtype != "bfloat16",
      fmt::format("a GPU has the trainer's order in bfloat16; --dtype is {}", config.dtype.get()));
  refuse(config.trains_adapters(),
         "a GPU adds adapters in orders that depend on the rows of a step; train the weights");
}

/// Where the engine does not compute what the trainer does, or draws from something else.
void check_same_bits(const RunConfig& config, Problems& problems) {
  const auto refuse = [&](bool is_so, const std::string& why) {
    problems.require(!is_so, fmt::format("{}: {}", kTrueOnPolicy, why));
  };
  refuse(config.world_size() > 1 || config.num_engine_workers > 0 || config.has_external_engines(),
         "several ranks and engines elsewhere add in another order than one process; train with "
         "one rank and its own engine");
  refuse(config.loss_type != "policy_loss" && config.loss_type != "custom_loss",
         fmt::format("needs log-probs of the policy: --loss-type policy_loss; it is {}",
                     config.loss_type.get()));
  refuse(config.train_async,
         "needs tokens of the weights that are trained; use slime train, not train-async");
  refuse(config.has_update_interval() && config.update_weights_interval > 1,
         fmt::format("--update-weights-interval {} lets the engine lag behind the trainer; use 1",
                     config.update_weights_interval));
  refuse(
      config.dtype != "float32" && config.dtype != "bfloat16",
      fmt::format("the engine computes in float32 or bfloat16; --dtype is {}", config.dtype.get()));
  refuse(config.has_codes(),
         "an engine with matrices in codes is not the trainer; leave --rollout-precision out");
  const std::string cache = config.kv_cache_dtype();
  refuse(cache != "auto" && cache != config.dtype.get(),
         fmt::format("--sglang-kv-cache-dtype {} rounds what the trainer keeps in {}; leave it out",
                     cache, config.dtype.get()));
  refuse(config.rollout_top_p < 1 || config.rollout_top_k != -1,
         "log-probs of a cut distribution are added in the order of its tokens; use "
         "--rollout-top-p 1 and no --rollout-top-k");
  refuse(config.rollout_temperature <= 0,
         fmt::format("needs --rollout-temperature above 0; it is {}", config.rollout_temperature));
}

/// Fast steps whose tokens a step with the trainer's bits verifies.
void check_verification(RunConfig& config, Problems& problems) {
  constexpr std::string_view kTokens = "--rollout-verify-tokens";
  const int64_t tokens = config.verify_tokens();
  problems.require(
      tokens >= 0 && tokens <= kMostVerifyTokens,
      fmt::format("{} {}: should be between 0 and {}", kTokens, tokens, kMostVerifyTokens));
  if (tokens == 0) return;
  problems.require(tokens < config.sglang_chunked_prefill_size,
                   fmt::format("{} {}: a step of --sglang-chunked-prefill-size {} verifies them "
                               "and the token before; use less",
                               kTokens, tokens, config.sglang_chunked_prefill_size));
  problems.require(
      !config.has_drafts(),
      fmt::format("{} {} and --rollout-drafts {}: tokens are verified once; choose one", kTokens,
                  tokens, config.rollout_drafts));
  // Functions of the user's that count what was verified ask `args` for this name.
  config.given_aliases["sglang_speculative_algorithm"] = "VERIFY";
}

/// What corrects a difference that is not there. With partial rollouts some tokens are of older weights.
void leave_out_corrections(ParsedFlags& flags) {
  RunConfig& config = flags.config;
  const auto leave_out = [&](Flag<bool>& is_on, std::string_view flag, std::string_view why) {
    if (!is_on) return;
    is_on = false;
    flags.warnings.push_back(fmt::format("{} has no effect with {}: {}", flag, kTrueOnPolicy, why));
  };
  if (!config.partial_rollout)
    leave_out(config.use_tis, "--use-tis", "each ratio of trainer and engine is 1");
  constexpr std::string_view kRouting = "trainer and engine choose the same experts by themselves";
  leave_out(config.use_routing_replay, "--use-routing-replay", kRouting);
  leave_out(config.use_rollout_routing_replay, "--use-rollout-routing-replay", kRouting);
}

}  // namespace

void check_on_policy(ParsedFlags& flags, Problems& problems) {
  if (!flags.config.true_on_policy) return;
  check_same_bits(flags.config, problems);
  check_on_gpu(flags.config, problems);
  check_verification(flags.config, problems);
  leave_out_corrections(flags);
}

}  // namespace slime::config
