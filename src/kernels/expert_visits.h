#pragma once

/// Tokens in the order of the experts that they visit, so that the rows of one expert are together.
///
///   two visits each   expert_TK = {2 0}  {0 1}        visits by expert: 0: tokens 0, 1   1: 1   2: 0
///   starts = {0 2 3 4}     token_S = {0 1 1 0}     place_TK = {3 0}  {1 2}
///
/// Dimensions: T tokens, K visits of each, S = T K visits, E experts.

#include <cstdint>

#include "core/tensor.h"
#include "kernels/group_starts.h"

namespace slime::kernels {

struct ExpertVisits {
  GroupStarts starts;  // visits [starts[e], starts[e + 1]) are those of expert e
  Tensor token_S;      // int64  which token's row a visit reads; ascending in each expert
  Tensor place_TK;     // int64  where visit k of token t is

  int64_t num_visits() const { return token_S.numel(); }
};

/// expert_TK: int64. On a GPU nothing waits for it. Throws BugError for a number that is no
/// expert's, which a GPU does not look at.
ExpertVisits group_by_expert(const Tensor& expert_TK, int64_t num_experts);

}  // namespace slime::kernels
