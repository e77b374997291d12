/// The trainer's way from a loss of the user's to gradients of the network.

#include "train/users_loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/pick_rows.h"
#include "train/columns.h"
#include "train/trainer.h"

namespace slime::train {
namespace {

constexpr int64_t kLogitRows = 1024;

/// A scalar with the gradient of the logits in it: hidden states carry it on, and the output layer has
/// got its own here.
Tensor logits_term(const Tensor& hidden_LH, const model::Network& network,
                   const Tensor& logits_gradient_LV) {
  const kernels::MatrixParam& head = network.head();
  const Tensor constant_LH = hidden_LH.detach().contiguous();
  Tensor gradient_LV =
      logits_gradient_LV.to(constant_LH.device(), constant_LH.scalar_type()).contiguous();
  gradient_LV = network.gradient_of_products(gradient_LV, constant_LH);
  kernels::add_adapted_weight_grad_(head, gradient_LV, constant_LH);
  return (hidden_LH * kernels::adapted_input_grad(gradient_LV, head.matrix)).sum();
}

}  // namespace

algo::Loss Trainer::users_loss(const TrainBatch& batch, const MicroBatch& micro_batch,
                               const ScoredPass& pass, const algo::PolicyColumns& columns_in,
                               const Columns& columns) {
  const auto hidden_of_tokens = [&] {
    if (!mesh_.tp().is_alone() || !mesh_.cp().is_alone())
      throw ConfigError(
          "a loss that asks for logits needs all of them on one rank: use tensor and context "
          "parallelism of 1");
    const Tensor rows = micro_batch.packed.row_L.to(pass.hidden_LH.device());
    return kernels::pick_rows(pass.hidden_LH, rows);
  };
  LossInput in{.batch = batch, .micro_batch = micro_batch, .columns = columns_in};
  in.columns.logprob_T = pass.scores.logprob_R.detach();
  in.columns.entropy_T = pass.scores.entropy_R.detach();
  in.teacher_T = columns.teacher.gather(micro_batch.samples);
  in.value_T = columns.values.gather(micro_batch.samples);
  in.return_T = columns.returns.gather(micro_batch.samples);
  in.has_entropy_gradient = config_.policy.entropy_coef != 0;
  in.num_tokens = micro_batch.packed.row_L.size(0);
  in.vocabulary = network_.head().matrix.outputs();
  in.write_logits = [&](const Tensor& logits_LV) {
    const at::NoGradGuard no_grad;
    const Tensor hidden_LH = hidden_of_tokens();
    // On a GPU in pieces, so that they are not there twice.
    const int64_t rows = hidden_LH.is_cpu() ? in.num_tokens : kLogitRows;
    for (int64_t row = 0; row < in.num_tokens; row += rows) {
      const int64_t end = std::min(row + rows, in.num_tokens);
      logits_LV.slice(0, row, end).copy_(network_.logits(hidden_LH.slice(0, row, end)));
    }
  };
  const LossResult result = config_.users_loss(in);

  algo::Loss loss;
  loss.metrics = result.metrics;
  loss.metrics["loss"] = result.loss;
  const auto add = [&loss](const Tensor& term) {
    loss.sum = loss.sum.defined() ? loss.sum + term : term;
  };
  // Zeros throughout, as of groups whose members all got the same reward: there is no backward pass.
  const auto counts = [](const Tensor& gradient) {
    return gradient.defined() && gradient.count_nonzero().item<int64_t>() > 0;
  };
  if (counts(result.logprob_gradient_T))
    add((pass.scores.logprob_R * result.logprob_gradient_T).sum());
  if (in.has_entropy_gradient && counts(result.entropy_gradient_T))
    add((pass.scores.entropy_R * result.entropy_gradient_T).sum());
  if (result.logits_gradient_LV.defined()) {
    const Tensor term = logits_term(hidden_of_tokens(), network_, result.logits_gradient_LV);
    add(term.cpu());
  }
  return loss;
}

}  // namespace slime::train
