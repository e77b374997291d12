#pragma once

/// Samples and distributions of a step, as TensorBoard and trackers show them beside its numbers.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "train/trainer.h"

namespace slime::report {

struct ShownSample {
  int64_t ordinal = 0;
  std::optional<double> reward;
  std::optional<double> advantage;  // mean of its trained tokens
  int64_t response_length = 0;
  std::string_view status;
  std::string prompt;  // both of at most kShownText bytes, the middle left out
  std::string response;
};
inline constexpr std::size_t kShownText = 2000;

/// Counts of finite values in ranges of equal width: counts[i] are in (limits[i - 1], limits[i]], the first
/// from `min` on.
struct Distribution {
  std::string name;  // "rollout/distribution/reward"
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;
  std::vector<double> counts;
};

struct StepDetails {
  std::vector<ShownSample> samples;
  std::vector<Distribution> distributions;
  bool empty() const { return samples.empty() && distributions.empty(); }
};

/// Of rewards, lengths of responses, log-probs of the trainer less the engine's on trained tokens, and
/// advantages, as far as they are known. `num_samples` samples, evenly spaced from the lowest reward to the
/// highest. `report`: null for a step that was not trained.
StepDetails details_of(std::span<const Group> groups, const train::TrainReport* report,
                       const std::string& reward_key, int64_t num_samples);

/// Of the values that are finite; none where there are none.
std::optional<Distribution> distribution_of(std::string name, std::span<const double> values);

/// `text`, or its beginning and its end where it is longer than `limit` bytes; valid UTF-8.
std::string shortened(std::string_view text, std::size_t limit);

}  // namespace slime::report
