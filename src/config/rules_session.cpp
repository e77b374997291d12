// Engines that outlive their trainer.

#include <fmt/format.h>

#include <algorithm>

#include "config/rules.h"

namespace slime::config {
namespace {

constexpr std::size_t kLongestName = 200;

/// What slime 0.4.0 has: engines are looked at, with fault tolerance or without.
constexpr double kHealthSeconds = 600;

bool is_session_name(const std::string& id) {
  return id.size() <= kLongestName &&
         std::ranges::all_of(id, [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

/// Why engines of this run end with it; empty: they do not.
std::string why_they_end(const RunConfig& config) {
  if (config.has_external_engines()) return "its engines are servers of others, and live anyway";
  if (config.num_engine_workers == 0) {
    return "its engines share a process or a device with the trainer and end with it; "
           "--rollout-num-gpus N without --colocate gives them processes of their own";
  }
  if (config.actor_num_nodes > 1) return "engines on several hosts end with the run";
  return "";
}

}  // namespace

void check_session(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const std::string& id = config.rollout_session_id;
  if (id.empty()) {
    problems.require(!flags.gives("--rollout-session-id"),
                     "--rollout-session-id: should be a name of at least one character");
    return;
  }
  problems.require(is_session_name(id),
                   fmt::format("--rollout-session-id: should be a name of at most {} "
                               "characters, on one line",
                               kLongestName));
  problems.require(
      config.rollout_session_minutes > 0 && config.rollout_session_minutes <= 100'000,
      fmt::format("--rollout-session-minutes {:g}: should be above 0 and at most 100000",
                  config.rollout_session_minutes.get()));
  problems.require(
      config.rollout_cleanup_timeout > 0 && config.rollout_cleanup_timeout <= 100'000,
      fmt::format("--rollout-cleanup-timeout {:g}: should be above 0 and at most 100000",
                  config.rollout_cleanup_timeout.get()));
  if (!config.generates() || config.debug_rollout_only) {
    flags.warnings.push_back(fmt::format(
        "--rollout-session-id {}: has no effect, {}", id,
        config.generates() ? "there is no trainer to outlive" : "nothing is generated"));
    config.rollout_session_id = "";
    return;
  }
  if (const std::string why = why_they_end(config); !why.empty()) {
    flags.warnings.push_back(fmt::format(
        "--rollout-session-id {}: {}. Generated steps that no checkpoint has are kept for the next "
        "trainer all the same",
        id, why));
    return;
  }
  if (!flags.gives("--rollout-health-check-interval"))
    config.rollout_health_check_interval = kHealthSeconds;
  if (!flags.gives("--rollout-health-check-timeout"))
    config.rollout_health_check_timeout = kHealthSeconds;
  if (!flags.gives("--rollout-health-check-first-wait"))
    config.rollout_health_check_first_wait = kHealthSeconds;
}

}  // namespace slime::config
