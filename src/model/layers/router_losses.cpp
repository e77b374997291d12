#include "model/layers/router_losses.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/pick_rows.h"
#include "model/layers/router.h"

namespace slime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The first argument; in the backward the second one is a loss of this weight.
struct BringLoss : torch::autograd::Function<BringLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& /*loss*/,
                        double weight) {
    ctx->saved_data["weight"] = weight;
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor weight = at::full({}, ctx->saved_data["weight"].toDouble(), grads[0].options());
    return {grads[0], weight, Tensor()};
  }
};

void sum_over(const std::vector<comm::RankGroup*>& groups, const Tensor& x, const char* what) {
  for (comm::RankGroup* ranks : groups) {
    if (!ranks->is_alone()) ranks->all_reduce_(x, what);
  }
}

/// (E / K) sum over e of (share of the visits) (mean score), the mean of the sequences'; one sequence
/// that is the whole batch for kMicroBatch. Of this rank's rows: the sum over the ranks is the term.
Tensor balance_term(const Tensor& logits_TE, const ExpertsConfig& config, const RouterPass& pass) {
  const RouterRows& rows = pass.rows;
  const Tensor score_TE = shares(logits_TE, config.score);
  const Tensor best_TK = std::get<1>(score_TE.detach().topk(config.per_token, -1));
  const Tensor visit_TE = at::zeros_like(score_TE.detach()).scatter_(1, best_TK, 1.0);
  const bool is_by_sequence = pass.losses.balance == RouterLosses::Balance::kSequence;
  const auto by_sequence = [&](const Tensor& x_TE) {
    if (!is_by_sequence) return (x_TE * rows.count_T.unsqueeze(1)).sum(0, true);
    return kernels::sum_rows(kernels::pick_rows(x_TE, rows.row_P), rows.sequence_P,
                             rows.length_Q.size(0));
  };
  const Tensor visits_QE = by_sequence(visit_TE);
  sum_over(rows.ranks, visits_QE, "visits of experts");
  const Tensor score_QE = by_sequence(score_TE);
  const Tensor length_Q = is_by_sequence ? rows.length_Q : rows.length_Q.sum().unsqueeze(0);
  const double factor = static_cast<double>(config.count) / static_cast<double>(config.per_token);
  return ((visits_QE * score_QE).sum(1) / length_Q.square()).mean() * factor;
}

}  // namespace

Tensor with_router_losses(const Tensor& logits_TE, const ExpertsConfig& config, RouterPass& pass,
                          int64_t layer) {
  const RouterRows& rows = pass.rows;
  Tensor loss = at::zeros({}, logits_TE.options());
  if (pass.losses.balance != RouterLosses::Balance::kNone && pass.losses.balance_coef != 0) {
    const Tensor term = balance_term(logits_TE, config, pass) * pass.losses.balance_coef;
    pass.terms_Y2[layer][0].copy_(term.detach());
    loss = loss + term;
  }
  if (pass.losses.z_coef != 0) {
    const Tensor squares_T = logits_TE.logsumexp(-1).square() * rows.count_T;
    const Tensor term = squares_T.sum() / rows.length_Q.sum() * pass.losses.z_coef;
    pass.terms_Y2[layer][1].copy_(term.detach());
    loss = loss + term;
  }
  return BringLoss::apply(logits_TE, loss, pass.gradient_scale);
}

}  // namespace slime::model
