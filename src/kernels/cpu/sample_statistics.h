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

/// Appends (logit, id) of all logits >= threshold that are not -infinity.
void collect_at_least(std::span<const float> logits_V, float threshold,
                      std::vector<std::pair<float, int32_t>>& out);

}  // namespace slime::kernels
