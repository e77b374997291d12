#pragma once

/// A critic's output layer: one number per token from its hidden state, in float32 (float64 for a
/// float64 model). It replaces the language model's head (spec section 8).

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "kernels/matrix.h"
#include "model/weights.h"

namespace slime::model {

class ValueHead final {
 public:
  /// weight ~ normal(0, init_std), bias 0; a function of the seed alone. `like`: the network's
  /// weights; the head is on their device, float64 for float64 and float32 for everything else.
  ValueHead(int64_t hidden_size, const Tensor& like, double init_std, uint64_t seed);
  ValueHead(const ValueHead&) = delete;  // the weights point at the parameters

  /// [T]: value of each row of hidden_TH. Under grad mode the backward adds into weights().grad().
  Tensor forward(const Tensor& hidden_TH) const;

  /// "value_head.weight" [1, H] and "value_head.bias" [1].
  Weights& weights() { return weights_; }

 private:
  Weights weights_;
  kernels::MatrixParam weight_1H_;
  kernels::Param bias_1_;
};

}  // namespace slime::model
