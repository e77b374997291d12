#include "model/layers/router.h"

#include <ATen/ATen.h>

namespace slime::model {
namespace {

/// Keeps a sum of weights that all vanished from dividing by zero.
constexpr double kTiny = 1e-20;

/// ATen's sigmoid of float32 on a CPU depends in its last bit on where a number lies in the tensor: numbers
/// that fill no vector go through another exponential function. In float64 both round to the same float32.
Tensor sigmoid_of(const Tensor& logits_TE) {
  if (logits_TE.is_cpu() && logits_TE.scalar_type() == at::kFloat)
    return logits_TE.to(at::kDouble).sigmoid().to(at::kFloat);
  return logits_TE.sigmoid();
}

Tensor scores_of(const Tensor& logits_TE, RouterScore score) {
  return score == RouterScore::kSigmoid ? sigmoid_of(logits_TE) : logits_TE.softmax(-1);
}

/// What is chosen by: experts outside of the best groups cannot be.
Tensor in_best_groups(const Tensor& choice_TE, const ExpertsConfig& config) {
  if (config.num_groups == 1) return choice_TE;
  const Tensor choice_TGE = choice_TE.view({choice_TE.size(0), config.num_groups, -1});
  const Tensor group_TG = std::get<0>(choice_TGE.topk(config.best_of_group, -1)).sum(-1);
  const Tensor best_TB = std::get<1>(group_TG.topk(config.groups_per_token, -1));
  const Tensor is_out_TG = at::ones_like(group_TG, at::kBool).scatter_(1, best_TB, 0);
  return choice_TGE.masked_fill(is_out_TG.unsqueeze(-1), -INFINITY).view(choice_TE.sizes());
}

Tensor weights_by(const Tensor& score_TE, const ExpertsConfig& config, const Tensor& expert_TK) {
  Tensor weight_TK = score_TE.gather(1, expert_TK);
  if (config.normalizes) weight_TK = weight_TK / (weight_TK.sum(-1, true) + kTiny);
  return config.scaling != 1 ? weight_TK * config.scaling : weight_TK;
}

}  // namespace

Tensor shares(const Tensor& logits_TE, RouterScore score) {
  const Tensor score_TE = scores_of(logits_TE, score);
  return score == RouterScore::kSoftmax ? score_TE : score_TE / (score_TE.sum(-1, true) + kTiny);
}

Routing route(const Tensor& logits_TE, const ExpertsConfig& config, const Tensor& selection_bias_E,
              const Tensor& given_TK) {
  const Tensor score_TE = scores_of(logits_TE, config.score);
  Tensor choice_TE = score_TE.detach();
  if (selection_bias_E.defined()) choice_TE = choice_TE + selection_bias_E;
  Routing routing;
  routing.expert_TK = std::get<1>(in_best_groups(choice_TE, config).topk(config.per_token, -1));
  if (given_TK.defined()) {
    const Tensor given = given_TK.to(at::kLong);
    routing.expert_TK = at::where(given.narrow(1, 0, 1) >= 0, given, routing.expert_TK);
  }
  routing.weight_TK = weights_by(score_TE, config, routing.expert_TK);
  return routing;
}

Tensor weights_of_visits(const Tensor& logits_TE, const ExpertsConfig& config,
                         const Tensor& expert_TK) {
  return weights_by(scores_of(logits_TE, config.score), config, expert_TK);
}

}  // namespace slime::model
