#pragma once

/// Checks of the sampling parameters against their ranges (engine/sampling_fields.h), and what some of
/// them mean.

#include <string>
#include <string_view>
#include <vector>

#include "engine/client.h"
#include "engine/sampling_fields.h"

namespace slime::engine {

/// One sentence per parameter that is out of range, empty when all are fine. `vocab_size` bounds
/// token ids.
std::vector<std::string> problems_of(const SamplingParams& params, int64_t vocab_size,
                                     SamplingNames names = SamplingNames::kSglang);

/// Names of the grammars, of which a request may have one.
std::vector<std::string_view> grammars_of(const SamplingParams& params,
                                          SamplingNames names = SamplingNames::kSglang);

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
