#include "model/layers/router.h"

#include <ATen/ATen.h>

namespace slime::model {
namespace {

/// Keeps a sum of weights that all vanished from dividing by zero.
constexpr double kTiny = 1e-20;

Tensor scores_of(const Tensor& logits_TE, RouterScore score) {
  return score == RouterScore::kSigmoid ? logits_TE.sigmoid() : logits_TE.softmax(-1);
}

}  // namespace

Routing route(const Tensor& logits_TE, const ExpertsConfig& config) {
  const Tensor score_TE = scores_of(logits_TE, config.score);
  Routing routing;
  routing.expert_TK = std::get<1>(score_TE.detach().topk(config.per_token, -1));
  routing.weight_TK = score_TE.gather(1, routing.expert_TK);
  if (config.normalizes)
    routing.weight_TK = routing.weight_TK / (routing.weight_TK.sum(-1, true) + kTiny);
  if (config.scaling != 1) routing.weight_TK = routing.weight_TK * config.scaling;
  return routing;
}

}  // namespace slime::model
