#pragma once

/// Cosines and sines of the rotary embedding, one table for all layers.

#include "core/tensor.h"
#include "model/config.h"

namespace slime::model {

struct RotaryTable {
  Tensor cos_PR;  // float32 [max_positions, head_dim / 2]
  Tensor sin_PR;
  /// Undefined where whole heads rotate. Otherwise int64 [head_dim]: kernels rotate number i of a
  /// head with number i + head_dim / 2, so the numbers of a head are taken in this order, rotating
  /// ones first in each half; angles of the rest are zero. Scores do not depend on the order.
  Tensor head_order_D;
};

/// Frequencies are rounded to float32 before they meet the position, as in the code the published
/// models were trained with.
/// The first `rotary_dim` of the `head_dim` numbers rotate, halves with each other.
RotaryTable make_rotary_table(const Rope& rope, int64_t rotary_dim, int64_t head_dim,
                              int64_t max_positions, at::Device device = at::kCPU);

}  // namespace slime::model
