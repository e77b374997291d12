#include "algo/loss.h"

#include <ATen/ATen.h>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::algo {
namespace {

/// sync: a handful of numbers per micro-batch, after its forward pass.
double weighted_sum(const Tensor& weight_T, const Tensor& x_T) {
  return (weight_T * x_T.detach()).sum(at::kDouble).item<double>();
}

/// `value` with the gradient `gradient_T` by x_T.
Tensor with_gradient(double value, const Tensor& gradient_T, const Tensor& x_T) {
  const Tensor linear = (gradient_T * x_T).sum();
  return linear + (value - linear.detach());
}

void require(const Tensor& column, const char* message) {
  if (!column.defined()) throw ConfigError(message);
}

}  // namespace

Tensor token_weights(Reduction how, const Tensor& trained_T, const Tensor& rollout_total_R,
                     const Tensor& starts) {
  const Tensor mask_T = trained_T.to(rollout_total_R.dtype());
  if (how == Reduction::kPerToken) return mask_T;
  return mask_T / expand_to_tokens(rollout_total_R.clamp_min(1), starts);
}

double token_denominator(const Tensor& trained_T, const Tensor& starts) {
  return sum_per_response(trained_T.to(at::kDouble), starts).clamp_min(1).sum().item<double>();
}

Loss policy_loss(const PolicyLossConfig& config, const PolicyColumns& in,
                 const PolicyFunctions& functions) {
  if (config.use_rollout_logprobs)
    require(in.engine_T, "use-rollout-logprobs: the samples have no engine log-probs");
  const Tensor trainer_T = in.old_T.defined() ? in.old_T : in.logprob_T.detach();
  const Tensor old_T = config.use_rollout_logprobs ? in.engine_T : trainer_T;
  // Of REINFORCE the mismatch is that of the policy which is trained.
  const bool is_reinforce = std::holds_alternative<Reinforce>(config.objective);
  const Tensor weighed_T = is_reinforce ? in.logprob_T.detach() : trainer_T;
  const PolicyTokens tokens{in.logprob_T, old_T, in.advantage_T, in.trained_T, in.starts};

  Loss loss;
  Tensor weight_T = in.weight_T;
  Tensor kept_T = in.trained_T;
  PolicyTerms terms = policy_terms(config.objective, tokens);
  if (config.off_policy_masking) {
    const MaskedSequences masked = mask_off_policy(*config.off_policy_masking, tokens);
    terms.loss_T = terms.loss_T * masked.keep_T;
    loss.metrics["opsm_clipfrac"] = masked.drop_share;
  }
  std::optional<CorrectedTokens> corrected;  // by a function of the user's, and applied
  if (functions.correct) {
    require(in.engine_T, "use-tis, get-mismatch-metrics: the samples have no engine log-probs");
    CorrectedTokens users =
        functions.correct(terms.loss_T.detach(), {weighed_T, in.engine_T, in.trained_T, in.starts});
    loss.metrics["ois"] = weighted_sum(in.weight_T, (-terms.k_T).exp());
    for (const auto& [name, x_T] : users.metrics)
      loss.metrics[name] = weighted_sum(in.weight_T, x_T);
    if (!config.reports_mismatch) {
      weight_T = users.weight_T;
      kept_T = users.kept_T;
      corrected = std::move(users);
    }
  }
  Tensor importance_T;  // undefined: 1
  if (config.correction) {
    require(in.engine_T, "use-tis, get-mismatch-metrics: the samples have no engine log-probs");
    const MismatchEffect mismatch =
        correct_mismatch(*config.correction, {weighed_T, in.engine_T, in.trained_T, in.starts});
    loss.metrics["ois"] = weighted_sum(in.weight_T, (-terms.k_T).exp());
    for (const auto& [name, x_T] : mismatch.metrics)
      loss.metrics[name] = weighted_sum(in.weight_T, x_T);
    if (!config.reports_mismatch) {
      if (mismatch.weight_T.defined()) terms.loss_T = terms.loss_T * mismatch.weight_T;
      importance_T = mismatch.weight_T;
      // From here on rejected tokens count as zeros; the denominators stay.
      weight_T = weight_T * mismatch.kept_T.to(weight_T.dtype());
      kept_T = mismatch.kept_T;
    }
  }

  if (config.centering) {
    require(in.listed.logprob_A,
            "use-score-centering: the samples have no record of their sampler");
    const CenteringTerms centering = center_scores(*config.centering, in.listed, config.correction);
    terms.loss_T = terms.loss_T + in.advantage_T * centering.correction_T;
    loss.metrics["sc_correction"] = weighted_sum(in.weight_T, centering.correction_T);
    loss.metrics["sc_sampler_head_mass"] = weighted_sum(in.weight_T, centering.sampler_mass_T);
    loss.metrics["sc_train_head_mass"] = weighted_sum(in.weight_T, centering.trainer_mass_T);
    loss.metrics["sc_importance_weight"] = weighted_sum(
        in.weight_T, importance_T.defined() ? importance_T : at::ones_like(in.advantage_T));
  }

  Tensor policy;
  if (functions.reduce || corrected) {
    const Tensor count_T =
        config.policy_divisor ? kept_T.to(weight_T.dtype()) / *config.policy_divisor : weight_T;
    const Tensor loss_T = corrected ? corrected->loss_T : terms.loss_T.detach();
    const ReducedTokens reduced =
        functions.reduce ? functions.reduce(loss_T, kept_T)
                         : ReducedTokens{(count_T * loss_T).sum().item<double>(), count_T};
    policy = with_gradient(reduced.sum,
                           corrected ? corrected->backward(reduced.gradient_T) : reduced.gradient_T,
                           terms.loss_T);
  } else {
    policy = config.policy_divisor
                 ? (kept_T.to(weight_T.dtype()) * terms.loss_T).sum() / *config.policy_divisor
                 : (weight_T * terms.loss_T).sum();
  }
  loss.sum = policy;
  loss.metrics["pg_loss"] = policy.item<double>();
  loss.metrics["pg_clipfrac"] = weighted_sum(weight_T, terms.clipped_T);
  loss.metrics["ppo_kl"] = weighted_sum(weight_T, terms.k_T);
  loss.metrics["entropy_loss"] = weighted_sum(weight_T, in.entropy_T);
  if (config.entropy_coef != 0)
    loss.sum = loss.sum - config.entropy_coef * (weight_T * in.entropy_T).sum();
  if (config.kl_loss) {
    check(in.ref_T.defined(), "a KL loss has log-probs of the reference");
    const Tensor importance = config.kl_loss->unbiased ? (in.logprob_T - old_T).exp() : Tensor();
    const Tensor kl =
        (weight_T * kl_estimate(config.kl_loss->type, in.logprob_T, in.ref_T, importance)).sum();
    loss.sum = loss.sum + config.kl_loss->coef * kl;
    loss.metrics["kl_loss"] = kl.item<double>();
  }
  const Tensor& engine_T = in.engine_T.defined() ? in.engine_T : in.known_engine_T;
  if (engine_T.defined()) {
    const Tensor& compared_T = config.use_rollout_logprobs || is_reinforce ? in.logprob_T : old_T;
    Tensor difference_T = compared_T - engine_T;
    if (!in.engine_T.defined()) difference_T = difference_T * in.has_engine_T;
    loss.metrics["train_rollout_logprob_abs_diff"] = weighted_sum(weight_T, difference_T.abs());
    // An estimate of the engine's divergence from the trainer that is never below zero.
    constexpr double kLargest = 20;  // exp() of more says nothing
    const Tensor bounded_T = difference_T.clamp(-kLargest, kLargest);
    loss.metrics["train_rollout_k3"] = weighted_sum(weight_T, bounded_T.expm1() - bounded_T);
  }
  loss.metrics["loss"] = loss.sum.item<double>();
  return loss;
}

Loss supervised_loss(const Tensor& logprob_T, const Tensor& weight_T) {
  Loss loss{-(weight_T * logprob_T).sum(), {}};
  loss.metrics["loss"] = loss.sum.item<double>();
  return loss;
}

Loss value_loss(double value_clip, const Tensor& value_T, const Tensor& old_value_T,
                const Tensor& return_T, const Tensor& weight_T) {
  const Tensor change_T = value_T - old_value_T;
  const Tensor bounded_T = old_value_T + change_T.clamp(-value_clip, value_clip);
  const Tensor loss_T = at::maximum((bounded_T - return_T).square(), (value_T - return_T).square());
  Loss loss{(weight_T * loss_T).sum(), {}};
  loss.metrics["value_loss"] = loss.sum.item<double>();
  loss.metrics["value_clipfrac"] =
      weighted_sum(weight_T, (change_T.abs() > value_clip).to(value_T.dtype()));
  return loss;
}

}  // namespace slime::algo
