// Generation beside training: one meaning for the words of several families
// (docs/async.md, "Words of others").

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "config/rules.h"

namespace slime::config {
namespace {

/// The value that several flags may name, and the one that gave it. Two that differ are a problem.
template <typename T, typename Other>
void merge(Flag<std::optional<T>>& value, std::string_view& flag, std::optional<T> meant,
           const Flag<Other>& other, std::string_view other_flag, Problems& problems) {
  if (!meant) return;
  problems.require(!value || *value == *meant,
                   fmt::format("{} {} and {} {}: say the same thing differently; give one", flag,
                               value.value_or(T{}), other_flag, *meant));
  value = meant;
  value.stems_from(other);
  flag = other_flag;
}
template <typename T>
void merge(Flag<std::optional<T>>& value, std::string_view& flag,
           const Flag<std::optional<T>>& other, std::string_view other_flag, Problems& problems) {
  merge(value, flag, other.get(), other, other_flag, problems);
}

void merge_bounds(RunConfig& config, Problems& problems, std::vector<std::string>& warnings) {
  std::string_view bound = "--max-staleness";
  merge(config.max_staleness, bound, config.max_weight_staleness, "--max-weight-staleness",
        problems);
  merge(config.max_staleness, bound, config.max_policy_version_lag, "--max-policy-version-lag",
        problems);
  merge(config.max_staleness, bound, config.fully_async_version_window,
        "--fully-async-version-window", problems);
  if (const std::optional<double> threshold = config.staleness_threshold) {
    problems.require(
        std::isfinite(*threshold) && *threshold >= 0 && *threshold <= 1e6,
        fmt::format("--staleness-threshold {}: should be between 0 and 1000000", *threshold));
    const double whole = std::floor(std::clamp(*threshold, 0.0, 1e6));
    if (whole != *threshold) {
      warnings.push_back(fmt::format(
          "--staleness-threshold {}: the bound is in updates, so it is {}", *threshold, whole));
    }
    merge(config.max_staleness, bound, std::optional(static_cast<int64_t>(whole)),
          config.staleness_threshold, "--staleness-threshold", problems);
  }
}

/// How many finished rollouts may wait.
void merge_sizes(RunConfig& config, Problems& problems) {
  std::string_view size = "--async-buffer-size";
  if (const std::optional<double> factor = config.async_data_buffer_capacity_factor) {
    problems.require(
        std::isfinite(*factor) && *factor >= 1 && *factor <= 1e6,
        fmt::format("--async-data-buffer-capacity-factor {}: should be at least 1", *factor));
    const std::optional<int64_t> batches =
        static_cast<int64_t>(std::clamp(std::floor(*factor), 1.0, 1e6));
    merge(config.async_buffer_size, size, batches, config.async_data_buffer_capacity_factor,
          "--async-data-buffer-capacity-factor", problems);
  }
  if (const std::optional<int64_t> samples = config.fully_async_max_completed_samples) {
    const int64_t of_a_rollout = config.rollout_batch_size * config.n_samples_per_prompt;
    problems.require(*samples >= of_a_rollout,
                     fmt::format("--fully-async-max-completed-samples {}: should be at least the "
                                 "{} of a rollout",
                                 *samples, of_a_rollout));
    merge(config.async_buffer_size, size,
          std::optional(std::max<int64_t>(*samples / std::max<int64_t>(of_a_rollout, 1), 1)),
          config.fully_async_max_completed_samples, "--fully-async-max-completed-samples",
          problems);
  }
}

void merge_concurrency(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  if (!config.async_max_concurrent_samples) return;
  problems.require(*config.async_max_concurrent_samples >= 1,
                   fmt::format("--async-max-concurrent-samples {}: should be at least 1",
                               *config.async_max_concurrent_samples));
  constexpr std::string_view kConcurrency = "--sglang-server-concurrency";
  const int64_t samples = *config.async_max_concurrent_samples;
  problems.require(
      !flags.gives(kConcurrency) || config.sglang_server_concurrency == samples,
      fmt::format("{} {} and --async-max-concurrent-samples {}: say the same thing differently; "
                  "give one",
                  kConcurrency, config.sglang_server_concurrency, samples));
  config.sglang_server_concurrency = samples;
  config.sglang_server_concurrency.stems_from(config.async_max_concurrent_samples);
}

/// Words that name the values of other flags.
void merge_words(ParsedFlags& flags, Problems& problems) {
  RunConfig& config = flags.config;
  const auto set = [&](Flag<std::string>& value, std::string_view flag, const std::string& other,
                       const auto& from, const std::string& given) {
    problems.require(!flags.gives(flag) || value == other,
                     fmt::format("{} {} and {}: contradict each other", flag, value, given));
    value = other;
    value.stems_from(from);
  };
  if (const std::string& handler = config.async_unused_samples_handler; !handler.empty()) {
    set(config.staleness_policy, "--staleness-policy", handler, config.async_unused_samples_handler,
        "--async-unused-samples-handler " + handler);
  }
  if (const std::string& policy = config.fully_async_buffer_policy; !policy.empty()) {
    const std::string given = "--fully-async-buffer-policy " + policy;
    const bool evicts = policy == "window_evict";
    const auto& from = config.fully_async_buffer_policy;
    set(config.async_order, "--async-order", evicts ? "finish" : "dispatch", from, given);
    if (evicts) set(config.staleness_policy, "--staleness-policy", "drop", from, given);
  }
  if (config.keep_cache_on_weight_update) {
    const std::string given = "--keep-cache-on-weight-update";
    const auto& from = config.keep_cache_on_weight_update;
    set(config.update_mode, "--update-mode", "suspend", from, given);
    set(config.kv_on_update, "--kv-on-update", "keep", from, given);
    problems.require(
        config.pause_generation_mode.empty() || config.pause_generation_mode == "in_place",
        fmt::format("{} and --pause-generation-mode {}: contradict each other", given,
                    config.pause_generation_mode));
  }
  if (const std::string& mode = config.pause_generation_mode; !mode.empty()) {
    const std::string given = "--pause-generation-mode " + mode;
    const auto& from = config.pause_generation_mode;
    set(config.update_mode, "--update-mode", mode == "abort" ? "interrupt" : "suspend", from,
        given);
    if (mode != "abort") {
      set(config.kv_on_update, "--kv-on-update", mode == "in_place" ? "keep" : "recompute", from,
          given);
    }
  }
}

}  // namespace

void merge_async_names(ParsedFlags& flags, Problems& problems) {
  merge_bounds(flags.config, problems, flags.warnings);
  merge_sizes(flags.config, problems);
  merge_concurrency(flags, problems);
  problems.require(flags.config.rollout_submission_granularity == "sample",
                   "--rollout-submission-granularity group: a place is filled as soon as one "
                   "sample has ended; use sample");
  merge_words(flags, problems);
}

}  // namespace slime::config
