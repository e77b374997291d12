#pragma once

/// Interface of a feed-forward layer: the second half of a decoder block, which computes each token alone.

#include <optional>
#include <string>

#include "core/tensor.h"
#include "kernels/routed_experts.h"
#include "model/costs.h"
#include "model/layers/products.h"

namespace slime::model {

struct RouterPass;

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  /// What is added to the residual stream: [T, H] from [T, H]. Differentiable under grad mode.
  /// `routers`: TokenBatch::routers.
  virtual Tensor forward(const Tensor& input_TH, RouterPass* routers) const = 0;

  /// The same for an engine, without gradients: what no backward needs is neither kept nor rounded.
  virtual Tensor infer(const Tensor& input_TH, RouterPass* routers) const {
    return forward(input_TH, routers);
  }

  /// Without a block's norms and residual stream, which the block itself counts.
  virtual Costs costs() const = 0;
  /// One line for people.
  virtual std::string describe() const = 0;

  /// Not null where forward() is a product to [gate; up], kernels::swiglu and a last product, whose
  /// results tensor-parallel ranks add up.
  virtual const Products* gated_products() const { return nullptr; }

  /// A value where forward() is routed experts, and one that is shared, and nothing else
  /// (kernels/routed_experts.h). `routers`: as of forward(), null or is_free().
  virtual std::optional<kernels::RoutedExperts> routed_experts(RouterPass* /*routers*/) const {
    return std::nullopt;
  }
};

}  // namespace slime::model
