#pragma once

/// Which experts a token visits, and what their outputs are multiplied by. Scores are float32
/// (float64 for float64), whatever the activations are.
///
/// Dimensions: T tokens, E experts, K visits of each token.

#include "core/tensor.h"
#include "model/experts_config.h"

namespace slime::model {

struct Routing {
  Tensor expert_TK;  // int64, by descending score
  Tensor weight_TK;  // float32 (float64); carries gradient under grad mode
};

/// logits_TE: float32 (float64).
Routing route(const Tensor& logits_TE, const ExpertsConfig& config);

}  // namespace slime::model
