#pragma once

/// Gated feed-forward experts: each token's sum of those that it visits.
///
///   y_t = sum over k of weight[t, k] * down_e (silu(gate_e x_t) * up_e x_t),  e = expert[t, k]
///
/// No token is dropped, and a row's numbers do not depend on the other rows: its products are those
/// of kernels/linear.h, and its visits are summed in the order of k. arXiv 1701.06538.
///
/// Dimensions: T tokens, K visits of each, S = T K, E experts, H hidden, F width of an expert.

#include <functional>

#include "core/tensor.h"
#include "kernels/expert_visits.h"
#include "kernels/matrix.h"

namespace slime::kernels {

/// All experts of a layer, one after the other.
struct ExpertStack {
  MatrixParam gate_up;  // [E 2F, H]: of each expert gates, then ups
  MatrixParam down;     // [E H, F]
  /// Another form: matrices that are [inputs, outputs], [E, H, 2F] and [E, F, H], with biases, and
  /// gates and ups in turn (kernels/clamped_swiglu.h).
  bool is_in_turns = false;
  Param gate_up_bias;  // [E, 2F], of the second form
  Param down_bias;     // [E, H], or of some columns (down_bias_begin)
  double swiglu_limit = 0;
  /// Ranks that have slices of the experts' width share down_bias: this one's columns begin here.
  int64_t down_bias_begin = 0;
};

/// [T, H] in the precision of x. weight_TK: float32 (float64). Differentiable under grad mode in x
/// and weight; the backward adds into the stack's gradients, and makes the products of gate and up
/// again.
Tensor experts(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK,
               const ExpertStack& stack);

/// The same without a gradient, for engines (kernels/swiglu.h: gated_linear).
Tensor inferred_experts(const Tensor& x_TH, const ExpertVisits& visits, const Tensor& weight_TK,
                        const ExpertStack& stack);

// Its parts, for rows that come from elsewhere and go back there (model/layers/expert_parallel.h).
// Row s is that of a visit; they lie by expert. Autograd knows nothing of these.

struct ExpertRows {
  Tensor out_SH;       // what the visits return, before their weights
  Tensor gate_up_S2F;  // for the backward
};
/// `token_S`: of which row of the pass each is; needed where its rows have several adapters.
ExpertRows expert_rows(const Tensor& x_SH, const GroupStarts& starts, const ExpertStack& stack,
                       const Tensor& token_S = {});

struct ExpertRowGradients {
  Tensor dx_SH;
  Tensor dweight_S;  // float32 (float64)
};
/// dout_SH: gradients of the sums that the visits are in, without weights. Adds into the stack's
/// gradients. x_SH is asked for once, when others are done with.
ExpertRowGradients expert_rows_backward(const Tensor& dout_SH, const std::function<Tensor()>& x_SH,
                                        const Tensor& gate_up_S2F, const Tensor& weight_S,
                                        const GroupStarts& starts, const ExpertStack& stack);

/// [T, H]: of each token the rows of its visits, times their weights where there are any.
Tensor sum_of_visits(const Tensor& rows_SH, const Tensor& place_TK, const Tensor& weight_TK);
/// [S], as the visits stand.
Tensor weight_of_visits(const Tensor& weight_TK, const Tensor& place_TK);

}  // namespace slime::kernels
