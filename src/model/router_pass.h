#pragma once

/// Input and output of routers for a batch: the experts of its tokens, and, where they are trained
/// to spread their tokens, the balance they reach.
///
/// Replay (spec section 14) gives the choices and nothing else: weights of visits come from the
/// present scores of the experts that were given, so gradients reach the router as ever.
///
/// Dimensions: Y layers of the whole model, T rows of the batch that this rank routes (tensor-parallel
/// ranks divide those of a context-parallel rank), K visits of each, E experts, Q sequences.

#include <cstdint>
#include <vector>

#include "comm/rank_group.h"
#include "core/tensor.h"

namespace slime::model {

/// Terms that keep tokens spread over the experts, by Megatron's definitions. Their gradients alone
/// are added, to the scores; the loss of the step stays as it is.
struct RouterLosses {
  /// Over the rows of a micro-batch, or of each sequence of it. arXiv 2101.03961, section 2.2.
  enum class Balance { kNone, kMicroBatch, kSequence };
  Balance balance = Balance::kNone;
  double balance_coef = 0;  // of (E / K) sum over e of (share of visits) (mean score)
  double z_coef = 0;        // of the mean of logsumexp(logits)^2; arXiv 2202.08906, section 3.3

  bool is_on() const { return (balance != Balance::kNone && balance_coef != 0) || z_coef != 0; }
  bool operator==(const RouterLosses&) const = default;
};

/// A row that several sequences share counts as often as it stands in one.
struct RouterRows {
  Tensor count_T;            // float32 (float64): in how many sequences the row is
  Tensor sequence_P, row_P;  // int64: of each of these places; kSequence alone
  Tensor length_Q;           // float32 (float64): rows of each sequence, of all ranks
  /// Groups over which the other rows of the same sequences lie.
  std::vector<comm::RankGroup*> ranks;
};

struct RouterPass {
  int64_t num_rows = 0;  // T
  /// int16 [Y, T, K]. A row whose first number is below 0 is routed freely; so are all without it.
  Tensor given_YTK;
  /// int16 [Y, T, K], rows of a layer at any stride: layers write who was visited; undefined: nobody asks. What was -1 stays so in
  /// layers that are dense or another stage's.
  Tensor made_YTK;

  /// What follows is of passes with gradients.
  RouterLosses losses;
  double gradient_scale = 1;  // of the terms' gradients
  RouterRows rows;
  /// float64 [Y, 2]: layers write the two terms, coefficients included; defined where losses are on.
  Tensor terms_Y2;
};

/// Whether routers choose by their scores alone. Null: nothing is said, so they do.
inline bool is_free(const RouterPass* routers) {
  return routers == nullptr || !routers->given_YTK.defined();
}

}  // namespace slime::model
