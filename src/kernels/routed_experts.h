#pragma once

/// Optional fused kernels of a device for routed experts, besides kernels::Device.
///
/// Router and experts of a feed-forward layer as one operation without gradients, for a few rows
/// (decode): the device routes, finds out which experts are visited and reads their weights once.
/// The parts, with gradients: model/layers/router.h and kernels/experts.h. The router alone in
/// training arithmetic (docs/decisions/0168-training-arithmetic.md). And the backward between the two
/// products of an expert.
///
/// Dimensions: T tokens, K visits of each, S = T K, E experts, H hidden, F width of an expert.

#include <optional>

#include "core/tensor.h"
#include "kernels/matrix.h"

namespace slime::kernels {

/// How the products with the router's matrix choose experts, and what the outputs of the chosen are
/// multiplied by.
struct RouterRule {
  int64_t per_token = 1;    // K
  bool is_sigmoid = false;  // scores are sigmoids, not a softmax over all experts
  bool normalizes = false;  // weights of the chosen are divided by their sum
  double scaling = 1;       // then multiplied by this
};

struct RoutedExperts {
  Matrix router_EH;
  Tensor selection_bias_E;  // float32, added to scores for the choice alone; may be undefined
  RouterRule rule;
  Matrix gate_up;  // [E, 2F, H]: of each expert gates, then ups
  Matrix down;     // [E, H, F]
  /// An expert that all tokens visit, with weight 1; undefined: none. In block chains alone
  /// (kernels/block_chain.h).
  Matrix shared_gate_up;  // [2 S, H]: gates, then ups
  Matrix shared_down;     // [H, S]
  /// int16, rows a stride apart: the choices are also written here; undefined: nobody asks.
  Tensor chosen_TK;

  int64_t count() const { return router_EH.outputs(); }
  int64_t width() const { return down.inputs(); }
};

/// Sums over the calls of expert kernels so far: how many there were, and how many experts had a
/// visit in them.
struct VisitedExperts {
  int64_t calls = 0;
  int64_t experts = 0;
};

/// Around silu(gate) * up of visits, with what comes back through the second product.
struct GatedGradients {
  Tensor dgate_up_S2F;  // with the visits' weights
  Tensor weighted_SF;   // silu(gate) * up times the visit's weight
  Tensor dweight_S;     // float32: of the visits' weights
};

/// Whom rows visit.
struct RouterChoices {
  Tensor expert_TK;  // int32, by descending score, equal ones by their number
  Tensor weight_TK;  // float32
};

struct ExpertSizes {
  int64_t hidden = 0, count = 0, width = 0, per_token = 0;
};

/// Implemented by a kernels::Device with such kernels.
class ExpertKernels {
 public:
  virtual ~ExpertKernels() = default;
  /// False where the kernels do not reach: shapes, precisions, too many rows, training arithmetic.
  virtual bool has_routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const = 0;
  /// [T, H] in the precision of x.
  virtual Tensor routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const = 0;
  /// Waits for the device.
  virtual VisitedExperts visited_experts() const = 0;

  /// Whether routers and experts of these sizes have training arithmetic (kernels/arithmetic.h).
  virtual bool has_exact_experts(const ExpertSizes& sizes) const = 0;
  /// The router alone in training arithmetic: no bit of a row depends on the other rows. Throws
  /// BugError for sizes and precisions without it. Autograd knows nothing of it.
  virtual RouterChoices exact_choices(const Tensor& x_TH, const RoutedExperts& experts) const = 0;

  /// dgated_SF: gradient of silu(gate) * up before the weights weight_S, float32. Rounded where single
  /// operations round. Nothing where the kernels do not reach.
  virtual std::optional<GatedGradients> gated_gradients(const Tensor& dgated_SF,
                                                        const Tensor& gate_up_S2F,
                                                        const Tensor& weight_S) const = 0;
};

/// Of the device that this tensor is on; null where it has none.
const ExpertKernels* expert_kernels_for(const Tensor& tensor);

}  // namespace slime::kernels
