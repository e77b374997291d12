#pragma once

/// AdamW over the flat weight buffer: one pass reads gradients and updates master weights, both
/// moments and the weights in the trained precision (Megatron semantics: decoupled decay on tensors
/// of two or more dimensions).
///
/// Master weights are float32 (float64 for float64 weights); where the trained precision is that
/// already, the flat buffer itself is the master.
///
/// With several ranks this is a distributed optimizer (train/shards.h): each holds master weights
/// and moments of its own shard of the flat buffer, over the ranks that have the same weights
/// (mesh.dp_cp()). P is the length of that shard, N that of the buffer; alone, P = N.
///
/// Tensor-parallel ranks and pipeline stages have other weights in their buffers, and some that they
/// share: those get the same gradient first, and so the same update on each.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "core/tensor.h"
#include "kernels/adamw.h"
#include "model/weights.h"
#include "train/gradient_reduction.h"
#include "train/streamed_adam.h"

namespace slime::train {

struct AdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  /// Weights on a GPU: master weights and moments stay in host memory (train/streamed_adam.h).
  bool on_host = false;
};

class Optimizer {
 public:
  /// `weights` and `mesh` outlive the optimizer; gradients are enabled on
  /// the weights. Tensors of these names are left as they are.
  Optimizer(model::Weights& weights, const AdamConfig& config,
            const std::vector<std::string>& frozen = {},
            const comm::Mesh& mesh = comm::Mesh::single());
  Optimizer(const Optimizer&) = delete;

  // Of a training step, in this order, on all ranks.

  /// Sums the gradients of all ranks, each shard at its owner.
  void reduce_gradients() { reduction_.finish(); }
  /// Sum of squares of the reduced gradients, of all shards of the whole model, each number once; not
  /// finite when one of them is not.
  double gradient_squares();
  /// One update with gradients multiplied by grad_scale; then all ranks have the new weights.
  void step(double lr, double weight_decay, double grad_scale);

  /// Zero moments and step counter.
  void reset();

  /// What this rank owns of the flat buffer.
  comm::Range shard() const { return shards()[mesh_.dp_cp().rank()]; }
  /// What each rank owns.
  const std::vector<comm::Range>& shards() const { return reduction_.shards(); }
  /// A part of the reduction may come before reduce_gradients().
  GradientReduction& reduction() { return reduction_; }
  /// Whether master weights are a buffer of their own.
  bool has_master() const;
  // With on_host: on the host, and up to date once the device is synchronized.
  const Tensor& master() const { return master_; }
  const Tensor& first_moment() const { return first_moment_; }
  const Tensor& second_moment() const { return second_moment_; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

 private:
  Tensor own(const Tensor& buffer_N) const;

  model::Weights& weights_;
  AdamConfig config_;
  const comm::Mesh& mesh_;
  GradientReduction reduction_;
  Tensor master_;         // [P], owned; a view of the flat buffer when the precisions agree
  Tensor first_moment_;   // [P], owned
  Tensor second_moment_;  // [P], owned
  std::unique_ptr<StreamedAdam> streamed_;  // with on_host
  std::vector<kernels::AdamRange> ranges_;  // of the own shard
  std::vector<comm::Range> counted_;        // of the own shard: what no other rank counts
  int64_t num_steps_ = 0;
};

}  // namespace slime::train
