#pragma once

/// DPO: direct preference optimisation (arXiv 2305.18290, equation 7). Of two responses to a prompt
/// one was preferred; the policy learns to widen the gap that the reference model gives them.
///
///   margin = beta ((log p(chosen) - log q(chosen)) - (log p(rejected) - log q(rejected)))
///   loss   = -log sigmoid(margin)
///
/// where log p(y) sums the log-probs of the trained tokens of y under the policy, q is the
/// reference. With label smoothing e the loss is (1 - e) of that plus e of it with the sign of the
/// margin turned: labels that are wrong with probability e (arXiv 2305.18290, appendix; "cDPO").
/// Dimensions: algo/packed.h; responses come in pairs, 2i chosen and 2i + 1 rejected.

#include "algo/loss.h"
#include "core/tensor.h"

namespace slime::algo {

struct Preference {
  double beta = 0.1;
  double label_smoothing = 0.0;  // in [0, 0.5)
};

struct PreferenceColumns {
  Tensor logprob_T;  // with gradient
  Tensor ref_T;
  Tensor trained_T;  // bool
  Tensor starts;     // int64 [2 pairs + 1] on the CPU
};

/// Sums over the pairs. Metrics: loss, rewards/chosen and rewards/rejected (beta times policy over
/// reference), rewards/margins, rewards/accuracies (share of pairs with a positive margin),
/// logps/chosen, logps/rejected.
Loss preference_loss(const Preference& how, const PreferenceColumns& in);

}  // namespace slime::algo
