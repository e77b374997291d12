#pragma once

/// Bounds of the sampling parameters that SGLang leaves open. The engine refuses what lies outside,
/// and so do the flags and the settings of an evaluation, before anything is generated.
///
/// The sampler computes in float32: (logit / penalty + bias) / temperature has to stay finite for
/// the smallest temperature that is not greedy, and temperature itself must not become infinite.
/// Within these bounds every setting still means something: far inside them a distribution is
/// uniform, or one token's.

#include <cstdint>

namespace slime {

/// Of one request: more than any context holds.
inline constexpr int64_t kMostTokens = int64_t{1} << 30;
inline constexpr int64_t kLargestTokenId = 2'147'483'647;
inline constexpr double kHighestTemperature = 1e6;
inline constexpr double kLowestRepetitionPenalty = 1e-6;
inline constexpr double kLargestLogitBias = 1e30;

}  // namespace slime
