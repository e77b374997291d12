#pragma once

/// How stale the tokens of a step are (docs/decisions/0075-long-lived-rollout.md).

#include <span>

#include "core/sample.h"
#include "loop/metrics.h"

namespace slime::loop {

/// Under rollout/weight_version/, over the generated tokens whose version is known; a token's lag
/// is `current` less its version:
///   oldest, newest           the lowest and the highest version
///   lag_mean, lag_max        over tokens
///   lag_oldest, lag_newest   of the stalest and of the freshest token of a sample: means over
///   samples stale_share              tokens of another version than `current`
/// Empty when no version is known.
Metrics version_metrics(std::span<const Group> groups, WeightVersion current);

}  // namespace slime::loop
