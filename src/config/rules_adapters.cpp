/// Adapters: which values they take, and what they cannot go with.

#include <fmt/format.h>

#include "config/rules.h"

namespace slime::config {
namespace {

/// One of several runs over one base: what they cannot share yet. Messages stand behind the adapter's name
/// (config/adapter_words.h).
void check_beside_others(const RunConfig& config, Problems& problems) {
  const auto excludes = [&](bool has, std::string_view other, std::string_view why) {
    problems.require(!has, fmt::format("{}: not with --adapter: {}", other, why));
  };
  problems.require(config.trains_adapters(), "needs --lora-rank or --lora-adapter-path");
  const std::string& dtype = config.dtype.get();
  excludes(config.is_on_gpus() && dtype != "bfloat16" && dtype != "float16", "--dtype " + dtype,
           "a GPU has batches with several adapters in bfloat16 or float16");
  excludes(config.train_async, "slime train-async", "runs of one base generate and train by turns");
  excludes(config.launcher == "ray" || config.launcher == "environment",
           "--launcher " + config.launcher.get(), "the base is in one process");
  excludes(config.world_size() > 1, "several ranks", "the base is in one process");
  excludes(config.num_engine_workers > 0, "engines of their own",
           "one engine of this process serves all adapters");
  excludes(config.debug_rollout_only, "--debug-rollout-only", "nothing would be trained");
  excludes(config.deterministic_schedule, "--deterministic-schedule",
           "its rounds have the engine for themselves");
  excludes(config.has_codes(), "--rollout-precision fp8", "engine and trainers read one base");
  excludes(config.use_rollout_routing_replay, "--use-rollout-routing-replay",
           "the engine would record choices of all");
  excludes(config.offload_rollout, "--offload-rollout", "others generate while one of them trains");
  excludes(!config.lora_modules_to_save.empty(), "--lora-modules-to-save",
           "rows of one batch cannot choose among whole modules");
  excludes(config.view, "--view", "slime view shows the folder of all of them");
  excludes(config.profile, "--profile", "a trace is of the whole process");
}

}  // namespace

void check_adapters(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  problems.require(config.lora_rank >= 0,
                   fmt::format("--lora-rank {}: is 0 or more", config.lora_rank));
  problems.require(config.lora_alpha > 0,
                   fmt::format("--lora-alpha {}: is above 0", config.lora_alpha));
  problems.require(config.lora_dropout >= 0 && config.lora_dropout < 1,
                   fmt::format("--lora-dropout {}: is in [0, 1)", config.lora_dropout));
  problems.require(config.adapter.empty(),
                   "--adapter: several runs at once are begun by slime train alone; leave it out, "
                   "and give the flags of one of them");
  if (!config.adapter_name.empty()) check_beside_others(config, problems);
  if (!config.trains_adapters()) return;
  const std::string flag = config.lora_rank > 0 ? "--lora-rank" : "--lora-adapter-path";
  const auto excludes = [&](bool has, std::string_view other, std::string_view why) {
    problems.require(!has, fmt::format("{}: not with {}: {}", flag, other, why));
  };
  excludes(config.lora_rank > 0 && !config.lora_adapter_path.empty(), "--lora-adapter-path",
           "the directory says the rank; leave --lora-rank out");
  excludes(config.has_critic(), "--advantage-estimator ppo",
           "the critic is a network of its own, whose weights are all trained");
  excludes(config.ref_update_interval.has_value(), "--ref-update-interval",
           "the reference is the model without its adapter, which stays as it is");
  excludes(!config.only_train_params_name_list.empty(), "--only-train-params-name-list",
           "--target-modules says what is trained");
  excludes(!config.freeze_params_name_list.empty(), "--freeze-params-name-list",
           "all weights are frozen; --exclude-modules leaves modules out");
  excludes(config.moe_router_enable_expert_bias, "--moe-router-enable-expert-bias",
           "it changes numbers of the model itself");
  excludes(!config.rollout_session_id.get().empty(), "--rollout-session-id",
           "engines that outlive their trainer keep all weights");
  excludes(config.update_weight_transport == "disk", "--update-weight-transport disk",
           "an adapter travels over the connections of engines");
  excludes(config.has_external_engines(), "--rollout-external-engine-addrs",
           "servers of others get all weights");
  excludes(config.update_weight_mode == "delta", "--update-weight-mode delta",
           "an adapter is published whole");
  excludes(config.takes_requests, "slime tinker", "each request for a model says its rank");
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
