#pragma once

/// Floating-point operations of a model, counted as the original counts them (spec section 13):
/// causal half of attention in both products, an output projection of hidden x hidden, no
/// embedding. Used to balance work and to report TFLOP/s.

#include <cstdint>
#include <span>

namespace slime::model {
class Network;
}

namespace slime::train {

/// Of a forward pass.
struct FlopsModel {
  double per_token = 0;
  double per_pair = 0;  // of a token and one that it may attend to, in all layers
};

/// Of the output layer, per token.
inline double head_flops(int64_t hidden, int64_t vocab) {
  return 2.0 * static_cast<double>(hidden) * static_cast<double>(vocab);
}

/// Sums of what the network's layers tell (model/costs.h), and the output layer.
FlopsModel flops_model_of(const model::Network& network);

/// Of a forward pass over these sequences. A training step takes three times that.
double forward_flops(const FlopsModel& model, std::span<const int64_t> lengths);

}  // namespace slime::train
