#pragma once

/// The two passes of sampling that touch every logit of a row, in their AVX2 and plain forms.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace slime::kernels {

inline constexpr int64_t kRowBlock = 512;

struct RowStatistics {
  float max = 0;
  int32_t argmax = 0;            // the first of equal ones
  double total = 0;              // sum of exp((logit - max) / temperature)
  std::vector<float> block_max;  // per kRowBlock logits
  std::vector<double> block_sum;
};

/// A row without a finite largest logit (a network that diverged) gets argmax 0 and total NaN.
void measure_row(std::span<const float> logits_V, float inverse_temperature, RowStatistics& row);

/// Log-prob of a target, entropy and log of the sum of exponentials of a row of logits.
struct TargetStatistics {
  float log_prob = 0;  // the bits that sample_row() and score_row() report
  float entropy = 0;
  float logsumexp = 0;  // of logits / temperature
};

/// `target` is -1 where another rank has it, then its logit counts as 0. The sum of exponentials is
/// measure_row()'s, in its order.
TargetStatistics target_statistics(std::span<const float> logits_V, int64_t target,
                                   double temperature);

/// Appends (logit, id) of all logits >= threshold that are not -infinity.
void collect_at_least(std::span<const float> logits_V, float threshold,
                      std::vector<std::pair<float, int32_t>>& out);

}  // namespace slime::kernels
