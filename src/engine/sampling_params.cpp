#include "engine/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

#include "core/sampling_bounds.h"

namespace slime::engine {

std::vector<std::string> problems_of(const SamplingParams& params, int64_t vocab_size) {
  std::vector<std::string> problems;
  const auto require = [&](bool holds, std::string_view name, std::string_view allowed,
                           const auto& value) {
    if (!holds) problems.push_back(fmt::format("{} must be {}, got {}", name, allowed, value));
  };
  const auto within = [&](double value, double low, double high, std::string_view name) {
    require(value >= low && value <= high, name, fmt::format("in [{:g}, {:g}]", low, high), value);
  };
  require(params.max_new_tokens >= 0, "max_new_tokens", "at least 0", params.max_new_tokens);
  require(std::isfinite(params.temperature) && params.temperature >= 0, "temperature",
          "a number >= 0", params.temperature);
  require(!(params.temperature > kHighestTemperature), "temperature",
          fmt::format("at most {:g}", kHighestTemperature), params.temperature);
  require(params.top_p > 0 && params.top_p <= 1, "top_p", "in (0, 1]", params.top_p);
  require(params.top_k == -1 || params.top_k >= 1, "top_k", "-1 (all) or at least 1", params.top_k);
  within(params.min_p, 0, 1, "min_p");
  within(params.frequency_penalty, -2, 2, "frequency_penalty");
  within(params.presence_penalty, -2, 2, "presence_penalty");
  within(params.repetition_penalty, kLowestRepetitionPenalty, 2, "repetition_penalty");
  require(params.min_new_tokens >= 0 && params.min_new_tokens <= params.max_new_tokens,
          "min_new_tokens", fmt::format("in [0, max_new_tokens = {}]", params.max_new_tokens),
          params.min_new_tokens);
  for (const std::string& text : params.stop)
    require(!text.empty(), "stop", "made of non-empty strings", "\"\"");
  for (const auto& [id, bias] : params.logit_bias) {
    require(id >= 0 && id < vocab_size, "a key of logit_bias",
            fmt::format("a token id below {}", vocab_size), id);
    within(bias, -kLargestLogitBias, kLargestLogitBias, "a value of logit_bias");
  }
  return problems;
}

}  // namespace slime::engine
