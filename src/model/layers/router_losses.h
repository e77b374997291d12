#pragma once

/// Terms that keep tokens spread over the experts (model/router_pass.h): their gradients come in on
/// the way back through the scores, wherever the layer's output goes.
///
/// Dimensions: T rows, E experts.

#include "core/tensor.h"
#include "model/experts_config.h"
#include "model/router_pass.h"

namespace slime::model {

/// logits_TE as they are. In the backward the gradients of the layer's terms, times
/// pass.gradient_scale, are added to theirs. Writes the terms of the layer into pass.terms_Y2. Who
/// counts as visited are the experts with the best scores, without selection bias and groups, and
/// also in replay: a term says where the router would send a token.
Tensor with_router_losses(const Tensor& logits_TE, const ExpertsConfig& config, RouterPass& pass,
                          int64_t layer);

}  // namespace slime::model
