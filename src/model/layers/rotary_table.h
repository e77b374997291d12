#pragma once

/// Cosines and sines of the rotary embedding, one table for all layers.

#include "core/tensor.h"
#include "model/config.h"

namespace slime::model {

struct RotaryTable {
  /// float32 [max_positions, head_dim / 2]; twice as many rows where ModelConfig::rotary_switch() is
  /// not 0: row max_positions + p is position p of a sequence that is longer than that.
  Tensor cos_PR;
  Tensor sin_PR;
  /// Undefined where whole heads rotate, halves with each other. Otherwise int64 [head_dim]: kernels
  /// rotate number i of a head with number i + head_dim / 2, so the numbers of a head are taken in
  /// this order, rotating ones first in each half; angles of the rest are zero. Scores do not depend
  /// on the order.
  Tensor head_order_D;
};

/// Which numbers of a head rotate, and with which.
struct RotaryHead {
  int64_t rotary_dim = 0;  // the first so many numbers of the head; even
  int64_t head_dim = 0;
  bool rotates_pairs = false;  // neighbours with each other, instead of halves
};

/// Frequencies are rounded to float32 before they meet the position, as in the code the published
/// models were trained with. `has_switch`: whether the model has a rotary_switch().
RotaryTable make_rotary_table(const Rope& rope, const RotaryHead& head, int64_t max_positions,
                              bool has_switch, at::Device device = at::kCPU);

/// What YaRN multiplies with the sines and cosines of a context that is `factor` times longer
/// (arXiv 2309.00071, section 3.4); 1 for a factor of at most 1.
double yarn_mscale(double factor, double mscale);

}  // namespace slime::model
