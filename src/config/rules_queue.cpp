// The durable queue of slime 0.4.0: what it asks for is what ledger and checkpoints give
// (docs/decisions/0137-branches.md).

#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "config/rules.h"
#include "core/json.h"

namespace slime::config {
namespace {

void check_declaration(const RunConfig& config, Problems& problems) {
  const std::string path = config.rollout_storage_declaration;
  if (path.empty()) return;
  problems.require(config.rollout_storage_profile == "juicefs",
                   fmt::format("--rollout-storage-declaration {}: is of --rollout-storage-profile "
                               "juicefs; local file systems need none",
                               path));
  if (!std::filesystem::exists(path)) {
    problems.require_path(false,
                          fmt::format("--rollout-storage-declaration {}: no such file", path));
    return;
  }
  try {
    problems.require(
        read_json_file(path, std::size_t{1} << 20).is_object(),
        fmt::format("--rollout-storage-declaration {}: should be a JSON object", path));
  } catch (const std::exception& error) {
    problems.require(false, fmt::format("--rollout-storage-declaration {}", error.what()));
  }
}

bool is_run_name(const std::string& name) {
  constexpr std::size_t kLongest = 128;
  return !name.empty() && name.size() <= kLongest &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "._-:") == std::string::npos;
}

}  // namespace

void check_queue(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  problems.require(
      !config.ckpt_step || *config.ckpt_step >= 0,
      fmt::format("--ckpt-step {}: should not be negative", config.ckpt_step.value_or(0)));
  problems.require(!config.ckpt_step || !config.debug_rollout_only,
                   "--ckpt-step: a run with --debug-rollout-only saves no checkpoint");
  problems.require(!config.rollout_queue_segment_mib || *config.rollout_queue_segment_mib > 0,
                   "--rollout-queue-segment-mib: should be at least 1");
  problems.require(is_run_name(config.rollout_queue_run_id),
                   fmt::format("--rollout-queue-run-id '{}': should be up to 128 letters, digits, "
                               "and . _ - :",
                               config.rollout_queue_run_id));
  if (config.rollout_data_transport == "nixl") {
    flags.warnings.emplace_back(
        "--rollout-data-transport nixl: has no effect, rollouts reach the trainer in memory");
  }
  if (config.rollout_data_transport != "straw") return;
  check_declaration(config, problems);
  if (config.rollout_queue_online_gc && config.keep_checkpoints == 0) {
    flags.warnings.emplace_back(
        "--rollout-queue-online-gc: has no effect with --keep-checkpoints 0: the first checkpoint "
        "needs all that came behind it");
  }
  problems.require(
      config.buffer_filter_path.empty(),
      fmt::format("--buffer-filter-path {}: not with --rollout-data-transport straw, which gives "
                  "waiting groups out by the age of their weights; leave out one of them (the "
                  "ledger keeps every group without straw too)",
                  config.buffer_filter_path));
  // "straw always orders so".
  config.buffer_sort_by_staleness = true;
  config.buffer_sort_by_staleness.stems_from(config.rollout_data_transport);
  problems.require(!flags.gives("--no-load-rng") || config.load.empty(),
                   "--no-load-rng: not with --rollout-data-transport straw, whose queue goes on "
                   "exactly; leave it out");
}

}  // namespace slime::config
