#pragma once

/// Interface of a token mixer (attention or a gated delta net): the first half of a decoder block.
///
/// Dimensions: T tokens, H hidden, E outputs of the first product, C inputs of the last one.

#include <string>

#include "core/error.h"
#include "model/attention.h"
#include "model/costs.h"
#include "model/layers/products.h"

namespace slime::model {

class Mixer {
 public:
  virtual ~Mixer() = default;

  /// What is added to the residual stream: [T, H] from [T, H]. Differentiable under grad mode.
  virtual Tensor forward(const Tensor& input_TH, const Tensor& positions_T,
                         Attention& attention) const = 0;

  /// Without a block's norms and residual stream, which the block itself counts.
  virtual Costs costs() const = 0;
  virtual CacheSpec cache() const = 0;
  /// One line for people.
  virtual std::string describe() const = 0;

  /// Not null where forward() is its first product, mix() and its last product, whose results
  /// tensor-parallel ranks add up. A mixer of another form has none, and no fast path that needs them.
  virtual const Products* products() const { return nullptr; }
  /// Between the two: [T, C] from [T, E]. Called where products() is not null.
  virtual Tensor mix(const Tensor& /*projected_TE*/, const Tensor& /*positions_T*/,
                     Attention& /*attention*/) const {
    throw BugError("mix() is for mixers with products()");
  }
};

}  // namespace slime::model
