#pragma once

/// Numbers about the samples of a rollout or an evaluation, named as the original names them (spec section 19).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"
#include "loop/metrics.h"

namespace slime::loop {

/// Of all samples: response_len/{mean,median,max,min}, zero_std/count_<reward>, prefix_cache_hit_rate,
/// avg_cached_tokens_per_sample, truncated_ratio, reward/mean. Names get `prefix` ("rollout/", "eval/aime/").
Metrics sample_metrics(std::span<const Group> groups, const std::string& reward_key, const std::string& prefix);

/// tokens_per_gpu_per_sec, effective_..., longest_sample_..., rollout_time, under perf/.
Metrics rollout_speed(std::span<const Group> groups, double seconds);

/// Unbiased pass@k for k = 1, 2, 4, ... up to the group size (spec 19.2): 1 - C(g - c, k) / C(g, k), mean over groups, where
/// c rewards of the g are exactly 1. Empty for groups of one. Names: <prefix>pass@<k>.
Metrics pass_at_k(std::span<const Group> groups, const std::string& reward_key, const std::string& prefix);

/// Mean reward over all samples that have one.
double mean_reward(std::span<const Group> groups, const std::string& reward_key);

}  // namespace slime::loop
