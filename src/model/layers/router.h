#pragma once

/// Router of a feed-forward layer with experts: the experts of each token and their weights. Scores
/// are float32 (float64 for float64), whatever the activations are.
///
/// Dimensions: T tokens, E experts, K visits of each token.

#include "core/tensor.h"
#include "model/experts_config.h"

namespace slime::model {

struct Routing {
  Tensor expert_TK;  // int64, by descending score
  Tensor weight_TK;  // float32 (float64); carries gradient under grad mode
};

/// logits_TE: float32 (float64). selection_bias_E: float32, undefined without one; it decides who is
/// chosen and nothing else (arXiv 2408.15664). Groups: arXiv 2405.04434, section 2.1.2.
/// given_TK, any integers: who is visited in the place of that choice (model/router_pass.h).
Routing route(const Tensor& logits_TE, const ExpertsConfig& config,
              const Tensor& selection_bias_E = {}, const Tensor& given_TK = {});

/// Of visits to these experts, int64 [T, K], by the same scores: the second half of route().
Tensor weights_of_visits(const Tensor& logits_TE, const ExpertsConfig& config,
                         const Tensor& expert_TK);

/// Scores of all experts whose sum is one: what router losses are of.
Tensor shares(const Tensor& logits_TE, RouterScore score);

}  // namespace slime::model
