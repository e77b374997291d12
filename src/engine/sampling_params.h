#pragma once

/// Ranges of the sampling parameters: SGLang's, and where it has no bound, what float32 can hold
/// (core/sampling_bounds.h).

#include <string>
#include <vector>

#include "engine/client.h"

namespace slime::engine {

/// One sentence per parameter that is out of range, empty when all are fine. `vocab_size` bounds
/// token ids.
std::vector<std::string> problems_of(const SamplingParams& params, int64_t vocab_size);

/// Temperatures below this are greedy.
inline constexpr double kGreedyTemperature = 1e-6;

inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature || params.top_k == 1;
}

/// What log-probs are scaled by: the temperature, or 1 when it is greedy (SGLang's rule).
inline double logprob_temperature(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature ? 1.0 : params.temperature;
}

}  // namespace slime::engine
