#pragma once

/// Staleness metrics of a step's tokens (docs/decisions/0075-long-lived-rollout.md).

#include <span>

#include "core/sample.h"
#include "report/metrics.h"

namespace slime::report {

/// Under rollout/weight_version/, over the generated tokens whose version is known; a token's lag
/// is `current` less its version:
///   oldest, newest               the lowest and the highest version
///   lag_mean, lag_max            over tokens
///   lag_oldest, lag_oldest_max   of the stalest token of a sample: mean and maximum over samples
///   lag_newest, lag_newest_max   the same of the freshest
///   lag_share/N                  tokens of lag N; lag_share/8_up: of 8 and more
///   stale_share                  tokens of another version than `current`
///   behind_update_share          tokens behind an update in their sample: with --kv-on-update keep,
///                                sampled over keys and values of older weights than their own
/// and, over the groups that know the version that they were begun with, lag_admission_mean and
/// lag_admission_max. Empty when no version is known.
Metrics version_metrics(std::span<const Group> groups, WeightVersion current);

/// The original's names for runs that generate all the time, under rollout/staleness/: a sample's
/// staleness is `current` less its oldest version; mean, max, unknown_count (no version known, or a
/// newer one), multi_version_frac (of the known ones: more than one version).
Metrics staleness_metrics(std::span<const Group> groups, WeightVersion current);

}  // namespace slime::report
