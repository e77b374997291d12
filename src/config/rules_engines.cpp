// Engines in processes of their own, beside the trainer.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "config/rules.h"

namespace slime::config {
namespace {

constexpr int64_t kMostEngines = 1024;

/// How a run whose only engine is on one device would have engines of several ranks.
std::string how_to_have_more_ranks(const RunConfig& config) {
  if (config.deterministic_schedule) return "--deterministic-schedule has it so";
  const std::string apart =
      "engines elsewhere, --rollout-num-gpus N without --colocate, may be of several";
  if (config.world_size() == 1) return "it is the trainer's; " + apart;
  if (config.debug_rollout_only) return "no rank trains with --debug-rollout-only; " + apart;
  return fmt::format(
      "several ranks that train have engines with --colocate, on CPUs also with "
      "--rollout-num-gpus {}",
      config.world_size());
}

/// Engines of several ranks over the devices of ranks that train.
void check_own_engines(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  const int64_t per_engine = config.rollout_num_gpus_per_engine;
  if (!config.has_engine_on_each_rank()) {
    flags.warnings.push_back(fmt::format(
        "--rollout-num-gpus-per-engine {}: has no effect, because the engine of this run is "
        "on one device; {}",
        per_engine, how_to_have_more_ranks(config)));
    return;
  }
  problems.require(
      config.world_size() % per_engine == 0,
      fmt::format("--rollout-num-gpus-per-engine {}: does not divide the {} ranks that train, on "
                  "whose devices the engines are",
                  per_engine, config.world_size()));
}

/// What would not be true on a GPU is refused there. On the CPU rows do not depend on their batch.
void check_promises_of_gpus(const ParsedFlags& flags, Problems& problems) {
  if (flags.config.device == "cpu") return;
  problems.require(
      !flags.gives("--sglang-enable-deterministic-inference"),
      "--sglang-enable-deterministic-inference: on a GPU the sums of a product depend on how many "
      "rows are computed at once, so an answer may differ in its last bits from batch to batch; "
      "leave it out, or use --device cpu");
}

}  // namespace

namespace {

/// Servers of others: this run has none of their devices, and no memory in common with them.
void check_external_engines(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const auto count = static_cast<int64_t>(config.rollout_external_engine_addrs.get().size());
  constexpr std::string_view kFlag = "--rollout-external-engine-addrs";
  const auto excludes = [&](bool has, std::string_view other, std::string_view why) {
    problems.require(!has, fmt::format("{}: not with {}: {}", kFlag, other, why));
  };
  excludes(config.colocate, "--colocate", "servers of others share no device with the trainer");
  excludes(config.use_rollout_routing_replay, "--use-rollout-routing-replay",
           "servers of others do not tell which experts a token visits");
  excludes(config.update_weight_mode == "delta", "--update-weight-mode delta",
           "servers of others read whole checkpoints");
  excludes(flags.gives("--update-weight-transport") && config.update_weight_transport != "disk",
           "--update-weight-transport", "weights come to them through a folder");
  excludes(config.rollout_num_gpus_per_engine > 1, "--rollout-num-gpus-per-engine",
           "their own command lines say how many devices they have");
  problems.require(count <= kMostEngines, fmt::format("{}: {} servers; there should be at most {}",
                                                      kFlag, count, kMostEngines));
  problems.require(
      !config.update_weight_disk_dir.empty(),
      fmt::format("{}: needs --update-weight-disk-dir DIR, a folder that the servers read too "
                  "(slime serve --weights-root DIR)",
                  kFlag));
  if (flags.gives("--rollout-num-gpus") && config.rollout_num_gpus != count) {
    flags.warnings.push_back(
        fmt::format("--rollout-num-gpus {}: has no effect: the engines are the {} servers of {}",
                    *config.rollout_num_gpus, count, kFlag));
  }
  config.update_weight_transport.stems_from(config.rollout_external_engine_addrs);
  config.update_weight_transport = "disk";
  config.num_engine_workers.stems_from(config.rollout_external_engine_addrs);
  config.num_engine_workers = count;
}

}  // namespace

void check_weight_publishing(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (config.update_weight_mode == "disk") {
    problems.require(
        !flags.gives("--update-weight-transport") || config.update_weight_transport == "disk",
        fmt::format("--update-weight-mode disk and --update-weight-transport {}: "
                    "contradict each other",
                    config.update_weight_transport));
    config.update_weight_transport.stems_from(config.update_weight_mode);
    config.update_weight_mode = "full";
    config.update_weight_transport = "disk";
  }
  const bool is_disk = config.update_weight_transport == "disk";
  problems.require(!is_disk || !config.update_weight_disk_dir.empty(),
                   "--update-weight-transport disk: needs --update-weight-disk-dir DIR");
  const bool is_plain = !is_disk && config.update_weight_mode == "full";
  if (!is_plain && config.num_engine_workers == 0) {
    flags.warnings.emplace_back(
        "--update-weight-mode, --update-weight-transport: no weights travel in this run; "
        "--rollout-num-gpus N without --colocate has engines elsewhere");
  }
  for (const std::string_view flag : {"--update-weight-disk-dir", "--update-weight-disk-keep-files",
                                      "--custom-update-weight-post-write-path"}) {
    if (!is_disk && flags.gives(flag))
      flags.warnings.push_back(fmt::format("{}: counts with --update-weight-transport disk", flag));
  }
  if (config.update_weight_mode == "full" && flags.gives("--update-weight-delta-encoding"))
    flags.warnings.emplace_back(
        "--update-weight-delta-encoding: counts with --update-weight-mode delta");
}

void check_engine_workers(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const auto in_seconds = [&](std::string_view flag, double value, bool may_be_zero) {
    problems.require(value <= 1e6 && (value > 0 || (may_be_zero && value == 0)),
                     fmt::format("{} {:g}: should be {} 0 and at most 1000000 seconds", flag, value,
                                 may_be_zero ? "at least" : "above"));
  };
  in_seconds("--rollout-health-check-interval", config.rollout_health_check_interval, false);
  in_seconds("--rollout-health-check-timeout", config.rollout_health_check_timeout, false);
  in_seconds("--rollout-health-check-first-wait", config.rollout_health_check_first_wait, true);
  problems.require(
      config.max_restarts >= 0 && config.max_restarts <= 1'000'000,
      fmt::format("--max-restarts {}: should be between 0 and 1000000", config.max_restarts));
  problems.require(config.update_weight_buffer_size >= 1,
                   fmt::format("--update-weight-buffer-size {}: should be at least 1 byte",
                               config.update_weight_buffer_size));
  check_promises_of_gpus(flags, problems);
  problems.require(config.rollout_num_gpus_per_engine >= 1,
                   fmt::format("--rollout-num-gpus-per-engine {}: should be at least 1",
                               config.rollout_num_gpus_per_engine));
  const bool draws = config.generates();
  if (config.has_external_engines() && draws) return check_external_engines(flags, problems);
  // Where trainer and engine take turns, the devices are the trainer's.
  if (config.colocate && draws && flags.gives("--rollout-num-gpus") &&
      config.rollout_num_gpus != config.world_size()) {
    flags.warnings.push_back(
        fmt::format("--rollout-num-gpus {} has no effect with --colocate: the engines are on the "
                    "trainer's devices, {} here",
                    *config.rollout_num_gpus, config.world_size()));
  }
  if (draws && config.rollout_num_gpus_per_engine > 1 &&
      (!config.rollout_num_gpus || config.colocate))
    check_own_engines(flags, problems);
  if (!config.rollout_num_gpus || config.colocate || !draws) return;
  const int64_t devices = *config.rollout_num_gpus;
  problems.require(devices >= 1,
                   fmt::format("--rollout-num-gpus {}: should be at least 1; without engines there "
                               "is nothing to train on but rows and dumps",
                               devices));
  if (devices < 1 || config.rollout_num_gpus_per_engine < 1) return;
  const int64_t per_engine = config.rollout_num_gpus_per_engine;
  problems.require(devices % per_engine == 0, fmt::format("--rollout-num-gpus {} is no multiple of "
                                                          "--rollout-num-gpus-per-engine {}",
                                                          devices, per_engine));
  problems.require(
      devices / per_engine <= kMostEngines,
      fmt::format("--rollout-num-gpus {}: should be at most {} engines", devices, kMostEngines));
  problems.require(per_engine == 1 || config.update_weight_mode != "delta",
                   fmt::format("--rollout-num-gpus-per-engine {}: an engine of several ranks takes "
                               "whole weights so far; use 1, or --update-weight-mode full",
                               per_engine));
  if (!flags.gives("--use-fault-tolerance")) {
    for (const std::string_view flag :
         {"--max-restarts", "--rollout-health-check-interval", "--rollout-health-check-timeout",
          "--rollout-health-check-first-wait"}) {
      if (flags.gives(flag))
        flags.warnings.push_back(fmt::format("{}: counts with --use-fault-tolerance", flag));
    }
  }
  config.num_engine_workers.stems_from(config.rollout_num_gpus);
  config.num_engine_workers = std::max<int64_t>(1, devices / per_engine);
}

/// Engines whose matrices are codes have weights of their own, made of whole plain ones by the sender.
void check_rollout_precision(ParsedFlags& flags, Problems& problems) {
  const RunConfig& config = flags.config;
  if (!config.has_codes() || !config.generates()) return;
  const std::string said = flags.how_said("--rollout-precision", "fp8");
  problems.require(!config.has_external_engines(),
                   said +
                       ": servers that others started store what they were started with; leave it "
                       "out, or leave out --rollout-external-engine-addrs");
  if (config.num_engine_workers > 0) {
    problems.require(config.update_weight_mode == "full",
                     fmt::format("{} and --update-weight-mode {}: codes are sent whole; use full",
                                 said, config.update_weight_mode));
    problems.require(config.update_weight_transport != "disk",
                     said +
                         " and --update-weight-transport disk: model directories of a run are "
                         "plain; leave the second out, and codes are sent");
  }
  problems.require(!flags.gives("--force-fp8-ue8m0-scale"),
                   said +
                       " and --force-fp8-ue8m0-scale: scales are float32 numbers of any value; "
                       "leave the second out");
  problems.require(config.dtype != "float64",
                   said + ": engines compute in float32 or in 16 bits; --dtype bfloat16");
  if (config.debug_rollout_only || config.use_tis || config.use_rollout_logprobs) return;
  flags.warnings.push_back(
      said +
      ": without --use-tis the rounding of the engine's weights is taken for the policy's; "
      "train/train_rollout_k3 says how far the two are apart");
}

}  // namespace slime::config
