#pragma once

/// Ranges of the sampling parameters: SGLang's, and where it has no bound, what float32 can hold.

#include <string>
#include <vector>

#include "engine/client.h"

namespace slime::engine {

/// One sentence per parameter that is out of range, empty when all are fine. `vocab_size` bounds
/// token ids.
std::vector<std::string> problems_of(const SamplingParams& params, int64_t vocab_size);

/// Temperatures below this are greedy.
inline constexpr double kGreedyTemperature = 1e-6;

/// The sampler computes in float32: (logit / penalty + bias) / temperature has to stay finite for
/// the smallest temperature that is not greedy, and temperature itself must not become infinite.
/// Within these bounds every setting still means something: far inside them a distribution is
/// uniform, or one token's.
inline constexpr double kHighestTemperature = 1e6;
inline constexpr double kLowestRepetitionPenalty = 1e-6;
inline constexpr double kLargestLogitBias = 1e30;

inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature || params.top_k == 1;
}

/// What log-probs are scaled by: the temperature, or 1 when it is greedy (SGLang's rule).
inline double logprob_temperature(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature ? 1.0 : params.temperature;
}

}  // namespace slime::engine
