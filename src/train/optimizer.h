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
/// (mesh.dp_cp(); mesh.edp() for the part of experts that ranks have divided). P is the length of a shard,
/// N that of the buffer; alone, P = N.
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

/// What a rank owns of one part of the flat buffer. With AdamConfig::on_host the tensors are on the host,
/// and up to date after Optimizer::wait().
struct OwnedShard {
  comm::Range elements;  // of the flat buffer
  /// [P], owned; a view of the flat buffer when the precisions agree.
  Tensor master;
  Tensor first_moment;   // [P], owned
  Tensor second_moment;  // [P], owned
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
  /// Zero moments and step counter, and master weights of the weights as they are: somebody wrote them.
  void begin_again();
  /// Of the updates from here on.
  void set_rates(double beta1, double beta2, double eps);

  /// Until the state of owned() is in memory as the last update left it: with on_host it may be on
  /// its way.
  void wait();

  /// One, or two where the buffer has two parts.
  const std::vector<OwnedShard>& owned() const { return owned_; }
  /// The same elements of another buffer of the length of the flat one, as views.
  std::vector<Tensor> own_shards_of(const Tensor& buffer_N) const;
  /// A part of the reduction may come before reduce_gradients().
  GradientReduction& reduction() { return reduction_; }
  /// Whether master weights are a buffer of their own.
  bool has_master() const;
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

 private:
  /// What an update of an owned shard works with; ranges count from the shard's beginning.
  struct Update {
    std::unique_ptr<StreamedAdam> streamed;  // with on_host
    std::vector<kernels::AdamRange> ranges;
    std::vector<comm::Range> counted;  // what no other rank counts
  };
  void own(const comm::Range& shard, const std::vector<std::string>& frozen);

  model::Weights& weights_;
  AdamConfig config_;
  const comm::Mesh& mesh_;
  GradientReduction reduction_;
  std::vector<OwnedShard> owned_;
  std::vector<Update> updates_;  // one for each of owned_
  int64_t num_steps_ = 0;
};

}  // namespace slime::train
