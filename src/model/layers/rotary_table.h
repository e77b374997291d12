#pragma once

/// Cosines and sines of the rotary embedding, one table for all layers.

#include "core/tensor.h"
#include "model/config.h"

namespace slime::model {

struct RotaryTable {
  Tensor cos_PR;  // float32 [max_positions, head_dim / 2]
  Tensor sin_PR;
};

/// Frequencies are rounded to float32 before they meet the position, as in the code the published
/// models were trained with.
RotaryTable make_rotary_table(const Rope& rope, int64_t head_dim, int64_t max_positions,
                              at::Device device = at::kCPU);

}  // namespace slime::model
