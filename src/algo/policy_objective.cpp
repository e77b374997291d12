#include "algo/policy_objective.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "algo/packed.h"

namespace slime::algo {
namespace {

/// The clipped term of TokenClip and SequenceClip, which differ in k alone.
template <typename Clip>
PolicyTerms clipped_terms(const Clip& how, const Tensor& k_T, const Tensor& advantage_T) {
  const Tensor ratio_T = (-k_T).exp();
  const Tensor free_T = -ratio_T * advantage_T;
  const Tensor bounded_T = -ratio_T.clamp(1 - how.low, 1 + how.high) * advantage_T;
  // at::maximum shares the gradient between equal arguments, which spec 7.2 asks for.
  Tensor loss_T = at::maximum(free_T, bounded_T);
  if (how.dual) {
    loss_T = at::where(advantage_T < 0, at::minimum(-*how.dual * advantage_T, loss_T), loss_T);
  }
  return {loss_T, (bounded_T > free_T).to(k_T.dtype()), k_T};
}

Tensor response_mean_of_k(const PolicyTokens& in) {
  return mean_per_response(in.old_T - in.logprob_T, in.trained_T, in.starts);
}

}  // namespace

PolicyTerms policy_terms(const TokenClip& how, const PolicyTokens& in) {
  return clipped_terms(how, in.old_T - in.logprob_T, in.advantage_T);
}

PolicyTerms policy_terms(const SequenceClip& how, const PolicyTokens& in) {
  return clipped_terms(how, expand_to_tokens(response_mean_of_k(in), in.starts), in.advantage_T);
}

PolicyTerms policy_terms(const ClippedWeight& how, const PolicyTokens& in) {
  const Tensor k_T = in.old_T - in.logprob_T;
  const Tensor ratio_T = (-k_T).exp();
  const Tensor weight_T = ratio_T.clamp(1 - how.low, 1 + how.high);
  return {-weight_T.detach() * in.advantage_T * in.logprob_T, (weight_T != ratio_T).to(k_T.dtype()),
          k_T};
}

PolicyTerms policy_terms(const Reinforce&, const PolicyTokens& in) {
  const Tensor k_T = in.old_T - in.logprob_T;
  return {-in.advantage_T * in.logprob_T, at::zeros_like(k_T), k_T};
}

PolicyTerms policy_terms(const PolicyObjective& how, const PolicyTokens& in) {
  return std::visit([&](const auto& objective) { return policy_terms(objective, in); }, how);
}

MaskedSequences mask_off_policy(const OffPolicyMasking& how, const PolicyTokens& in) {
  const at::NoGradGuard no_grad;
  const Tensor k_T = expand_to_tokens(response_mean_of_k(in), in.starts);
  const Tensor dropped_T = ((in.advantage_T < 0) & (k_T > how.delta)).to(k_T.dtype());
  const Tensor trained_R = sum_per_response(in.trained_T.to(k_T.dtype()), in.starts).clamp_min(1);
  // sync: one number per micro-batch.
  return {1 - dropped_T, (sum_per_response(dropped_T, in.starts) / trained_R).sum().item<double>()};
}

}  // namespace slime::algo
