#include "algo/score_centering.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "algo/packed.h"
#include "core/error.h"

namespace slime::algo {
namespace {

/// A share of the vocabulary that is not listed is taken for this much at least.
constexpr double kSmallestRest = 1e-6;

/// The weight of a token of this ratio of the trainer's probability to the sampler's.
Tensor weight_of(const Tensor& ratio, const std::optional<MismatchCorrection>& correction) {
  if (!correction) return at::ones_like(ratio);
  if (const auto* bounds = std::get_if<TruncatedImportance>(&*correction))
    return ratio.clamp(bounds->low, bounds->high);
  if (const auto* bounds = std::get_if<DroppedImportance>(&*correction))
    return at::where((ratio >= bounds->low).logical_and(ratio <= bounds->high), ratio,
                     at::zeros_like(ratio));
  throw BugError("score centering weighs token by token");
}

/// The listed tokens of one response token are what tokens of one response are elsewhere.
Tensor sum_of_listed(const Tensor& x_A, const Tensor& offsets) {
  return sum_per_response(x_A, offsets);
}

}  // namespace

CenteringTerms center_scores(const ScoreCentering& how, const ListedTokens& listed,
                             const std::optional<MismatchCorrection>& correction) {
  CenteringTerms terms;
  Tensor residual_A;
  {
    const at::NoGradGuard no_grad;
    const Tensor logprob_A = listed.logprob_A.detach();
    const Tensor p_A = logprob_A.exp(), q_A = listed.sampler_A.exp();
    terms.sampler_mass_T = sum_of_listed(q_A, listed.offsets);
    terms.trainer_mass_T = sum_of_listed(p_A, listed.offsets);
    residual_A = q_A * weight_of((logprob_A - listed.sampler_A).exp(), correction);
    if (!how.lists_support) {
      const Tensor rho_T = (1 - terms.sampler_mass_T).clamp_min(kSmallestRest) /
                           (1 - terms.trainer_mass_T).clamp_min(kSmallestRest);
      const Tensor alpha_T = rho_T * weight_of(rho_T.reciprocal(), correction);
      residual_A = residual_A - expand_to_tokens(alpha_T, listed.offsets) * p_A;
    }
  }
  terms.correction_T = sum_of_listed(residual_A * listed.logprob_A, listed.offsets);
  return terms;
}

}  // namespace slime::algo
