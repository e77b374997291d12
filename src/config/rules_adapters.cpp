/// Adapters: which values they take, and what they cannot go with.

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {

void check_adapters(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  problems.require(config.lora_rank >= 0,
                   fmt::format("--lora-rank {}: is 0 or more", config.lora_rank));
  problems.require(config.lora_alpha > 0,
                   fmt::format("--lora-alpha {}: is above 0", config.lora_alpha));
  problems.require(config.lora_dropout >= 0 && config.lora_dropout < 1,
                   fmt::format("--lora-dropout {}: is in [0, 1)", config.lora_dropout));
  if (!config.trains_adapters()) return;
  const std::string flag = config.lora_rank > 0 ? "--lora-rank" : "--lora-adapter-path";
  const auto excludes = [&](bool has, std::string_view other, std::string_view why) {
    problems.require(!has, fmt::format("{}: not with {}: {}", flag, other, why));
  };
  excludes(config.lora_rank > 0 && !config.lora_adapter_path.empty(), "--lora-adapter-path",
           "the directory says the rank; leave --lora-rank out");
  excludes(config.has_critic(), "--advantage-estimator ppo",
           "the critic is a network of its own, whose weights are all trained");
  excludes(config.has_advantages() && config.keep_old_actor, "--keep-old-actor",
           "it keeps a second network with all weights");
  excludes(config.ref_update_interval.has_value(), "--ref-update-interval",
           "the reference is the model without its adapter, which stays as it is");
  excludes(!config.only_train_params_name_list.empty(), "--only-train-params-name-list",
           "--target-modules says what is trained");
  excludes(!config.freeze_params_name_list.empty(), "--freeze-params-name-list",
           "all weights are frozen; --exclude-modules leaves modules out");
  excludes(config.moe_router_enable_expert_bias, "--moe-router-enable-expert-bias",
           "it changes numbers of the model itself");
  excludes(config.rollout_num_gpus_per_engine > 1, "--rollout-num-gpus-per-engine above 1",
           "an engine with an adapter has one rank so far");
  excludes(!config.rollout_session_id.get().empty(), "--rollout-session-id",
           "engines that outlive their trainer keep all weights");
  excludes(config.update_weight_transport == "disk", "--update-weight-transport disk",
           "an adapter travels over the connections of engines");
  excludes(config.has_external_engines(), "--rollout-external-engine-addrs",
           "servers of others get all weights");
  excludes(config.update_weight_mode == "delta", "--update-weight-mode delta",
           "an adapter is published whole");
  excludes(config.takes_requests, "slime tinker", "requests train all weights so far");
  if (config.lora_dropout > 0) {
    excludes(config.recompute_granularity == "full",
             "--recompute-granularity full and --lora-dropout",
             "what is computed again would drop other numbers; use selective, or no dropout");
    excludes(config.model_parallel_size() > 1,
             "tensor, pipeline or context parallelism and --lora-dropout",
             "ranks would drop other numbers than one rank");
  }
  // Rates of whole networks: 1e-6 from rewards, 1e-5 from given answers.
  const bool is_supervised = config.is_supervised();
  if (config.lr <= (is_supervised ? 2e-5 : 2e-6)) {
    flags.warnings.push_back(
        fmt::format("--lr {}: is a rate for all weights; adapters learn at about ten times that, "
                    "such as {}",
                    config.lr, is_supervised ? "1e-4 to 4e-4" : "1e-5 to 4e-5"));
  }
}

}  // namespace slime::config
