#pragma once

/// The policy-gradient term of the loss, per token (spec sections 7.2 to 7.4), and off-policy
/// sequence masking (7.5), a factor on it. Dimensions: algo/packed.h.
///
/// With k = old - logprob (per token, or its mean over the response) and ratio = exp(-k).

#include <optional>
#include <variant>

#include "core/tensor.h"

namespace slime::algo {

/// max(-ratio A, -clip(ratio, 1 - low, 1 + high) A): PPO (arXiv 1707.06347, equation 7); high > low
/// is DAPO's clip-higher (arXiv 2503.14476); `dual` > 1 bounds the loss by -dual A where A < 0
/// (arXiv 1912.09729).
struct TokenClip {
  double low = 0.2;
  double high = 0.2;
  std::optional<double> dual;
};

/// GSPO: the same with one ratio per response, the geometric mean of its trained tokens' (arXiv
/// 2507.18071).
struct SequenceClip {
  double low = 0.2;
  double high = 0.2;
  std::optional<double> dual;
};

/// CISPO: -constant(clip(ratio, 1 - low, 1 + high)) A logprob, so that clipped tokens still learn
/// (arXiv 2506.13585).
struct ClippedWeight {
  double low = 1.0;
  double high = 4.0;
};

/// REINFORCE: -A logprob, with neither ratio nor clip. Weights against the mismatch of trainer and engine are taken
/// from the policy that is trained, held constant.
struct Reinforce {};

using PolicyObjective = std::variant<TokenClip, SequenceClip, ClippedWeight, Reinforce>;

struct PolicyTokens {
  Tensor logprob_T;    // of the policy being trained; carries gradient
  Tensor old_T;        // of the policy the ratio is taken to; constant
  Tensor advantage_T;  // constant
  Tensor trained_T;    // bool
  Tensor starts;       // int64 [R + 1] on the CPU
};

struct PolicyTerms {
  Tensor loss_T;     // to be minimised; carries gradient
  Tensor clipped_T;  // 0 or 1: the clipped branch won
  Tensor k_T;        // old - logprob, or its response mean
};

PolicyTerms policy_terms(const TokenClip& how, const PolicyTokens& in);
PolicyTerms policy_terms(const SequenceClip& how, const PolicyTokens& in);
PolicyTerms policy_terms(const ClippedWeight& how, const PolicyTokens& in);
PolicyTerms policy_terms(const Reinforce& how, const PolicyTokens& in);
PolicyTerms policy_terms(const PolicyObjective& how, const PolicyTokens& in);

/// Off-policy sequence masking: drops tokens with A < 0 of responses whose mean of old - logprob
/// exceeds delta.
struct OffPolicyMasking {
  double delta = 1e-4;
};

struct MaskedSequences {
  Tensor keep_T;  // 0 or 1, no gradient
  /// Sum over responses of dropped tokens / max(trained tokens, 1), reported as opsm_clipfrac.
  double drop_share = 0;
};

MaskedSequences mask_off_policy(const OffPolicyMasking& how, const PolicyTokens& in);

}  // namespace slime::algo
