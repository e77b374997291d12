#pragma once

/// AdamW over the flat weight buffer: one pass reads gradients and updates master weights, both
/// moments and the weights in the trained precision (Megatron semantics: decoupled decay on tensors
/// of two or more dimensions).
///
/// Master weights are float32 (float64 for float64 weights); where the trained precision is that
/// already, the flat buffer itself is the master.

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/adamw.h"
#include "model/weights.h"

namespace slime::train {

struct AdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

class Optimizer {
 public:
  /// `weights` outlives the optimizer; gradients are enabled on it. Tensors of these names are left
  /// as they are.
  Optimizer(model::Weights& weights, const AdamConfig& config,
            const std::vector<std::string>& frozen = {});
  Optimizer(const Optimizer&) = delete;

  /// One update with gradients multiplied by grad_scale.
  void step(double lr, double weight_decay, double grad_scale);
  /// Zero moments and step counter.
  void reset();

  const Tensor& master() const { return master_; }
  const Tensor& first_moment() const { return first_moment_; }
  const Tensor& second_moment() const { return second_moment_; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

 private:
  model::Weights& weights_;
  AdamConfig config_;
  Tensor master_;         // [N], owned; the flat buffer itself when the precisions agree
  Tensor first_moment_;   // [N], owned
  Tensor second_moment_;  // [N], owned
  std::vector<kernels::AdamRange> ranges_;
  int64_t num_steps_ = 0;
};

}  // namespace slime::train
