#pragma once

/// User functions that replace parts of the policy loss: the correction between engine and trainer,
/// and the sum over tokens (spec sections 7.6 and 10). Dimensions: algo/packed.h.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "algo/mismatch.h"
#include "core/tensor.h"

namespace slime::algo {

/// The objective's loss per token as a correction leaves it. Nothing here carries gradient.
struct CorrectedTokens {
  Tensor loss_T;
  Tensor kept_T;    // the masks, in floating point
  Tensor weight_T;  // what each token counts in a sum with these masks
  /// Per token, to be averaged over the original masks.
  std::vector<std::pair<std::string, Tensor>> metrics;
  /// The gradient by the objective's loss, from that by `loss_T`. Called once, or never.
  std::function<Tensor(const Tensor& gradient_T)> backward;
};

struct ReducedTokens {
  double sum = 0;
  Tensor gradient_T;  // of the sum, by each token's loss
};

/// Absent ones: the built-in ones. What they throw ends the run.
struct PolicyFunctions {
  std::function<CorrectedTokens(const Tensor& loss_T, const MismatchTokens& in)> correct;
  std::function<ReducedTokens(const Tensor& loss_T, const Tensor& kept_T)> reduce;
};

}  // namespace slime::algo
