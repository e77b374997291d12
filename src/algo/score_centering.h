#pragma once

/// Score centering (arXiv 2609.20807): a term beside the REINFORCE loss that takes away the drift of an update
/// whose tokens another policy has drawn.
///
/// With q the sampler's probabilities, p the trainer's, both of the position, and w the importance weight that the
/// correction gives a token (1 without one), all of them constant:
///
///   L = -A w(y) log p(y) + A C
///   the whole support S is listed:   C = sum_S q_a w(p_a / q_a) log p_a
///   the K likeliest, H, are listed:  C = sum_H (q_a w(p_a / q_a) - alpha p_a) log p_a
///     with alpha = rho w(1 / rho), rho = (1 - sum_H q) / (1 - sum_H p): the rest is taken for q = rho p
///
/// so that the mean of the gradient over the sampler's draws is zero where all have the same advantage.
/// Dimensions: T response tokens, A listed ones.

#include <optional>

#include "algo/mismatch.h"
#include "core/tensor.h"

namespace slime::algo {

struct ScoreCentering {
  /// The listed tokens are all that could be drawn; false: the likeliest, `num_listed` of each token.
  bool lists_support = false;
  int64_t num_listed = 128;
};

/// Of the response token t: [offsets[t], offsets[t + 1]).
struct ListedTokens {
  Tensor logprob_A;  // of the policy being trained; carries gradient
  Tensor sampler_A;  // the sampler's log-probs; constant
  Tensor offsets;    // int64 [T + 1] on the CPU
};

struct CenteringTerms {
  Tensor correction_T;    // C; carries gradient
  Tensor sampler_mass_T;  // sum of q over the listed tokens
  Tensor trainer_mass_T;  // sum of p
};

/// A token with nothing listed has C = 0. `correction`: TruncatedImportance, DroppedImportance or nothing.
CenteringTerms center_scores(const ScoreCentering& how, const ListedTokens& listed,
                             const std::optional<MismatchCorrection>& correction);

}  // namespace slime::algo
