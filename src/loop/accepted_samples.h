#pragma once

/// Rejection sampling: which of a group's generated samples supervised training imitates.

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "report/metrics.h"

namespace slime::loop {

/// Of the samples that are not removed already, those with a reward.
struct Acceptance {
  std::optional<double> min_reward;  // and at least this one
  std::optional<int64_t> best;  // of a group, at most so many executions: the first of the best
  std::string reward_key;       // empty: the reward is a number
};

/// --rejection-min-reward, --rejection-keep-best.
Acceptance acceptance_of(const config::RunConfig& config);

/// Marks the others remove_sample. Samples of one execution are accepted together, by the highest of
/// their rewards. Returns the metrics rollout/rejection/. Throws ConfigError for a reward that is no
/// number.
report::Metrics reject_others(std::vector<Group>& groups, const Acceptance& acceptance);

}  // namespace slime::loop
