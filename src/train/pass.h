#pragma once

/// One micro-batch on its way through the network of a rank: its rows of the tokens, its layers, and
/// log-probs of all rows at the end.
///
/// Dimensions: L rows of this rank (all U of the packed batch without context parallelism), H hidden,
/// S and T as in train/packing.h.

#include "comm/mesh.h"
#include "kernels/arithmetic.h"
#include "kernels/linear_logprob.h"
#include "model/context_rows.h"
#include "model/network.h"
#include "model/router_pass.h"
#include "model/tree_attention.h"
#include "model/value_head.h"
#include "train/micro_batch.h"

namespace slime::train {

/// What is asked of the routers of one micro-batch, and what came of it.
struct RoutingOfPass {
  /// Rows visit whom they visited in the pass for old log-probs, or, where that was not recorded,
  /// whom the engine's routers chose, or whom they like.
  bool replays = false;
  model::RouterLosses losses;
  double gradient_scale = 1;  // of their gradients
  /// Made by the pass, of the rows and layers of this rank.
  Tensor count_L;   // float32 (float64): in how many sequences a row is
  Tensor made_YLK;  // int16 [Y, L, K]
  Tensor terms_Y2;  // model::RouterPass
};

/// Results per token are the same on all context- and tensor-parallel ranks, and what follows them is
/// computed by each: a number per token is little beside the pass.
class Pass final {
 public:
  /// All of them outlive the pass, which outlives its backward. `routing` is null where routers are
  /// free and nobody asks.
  Pass(model::Network& network, const comm::Mesh& mesh, const MicroBatch& micro_batch,
       RoutingOfPass* routing);
  Pass(const Pass&) = delete;

  /// model::Network::forward_chunk() of this rank's rows.
  Tensor forward(int chunk, const Tensor& stream_LH);
  /// Room for what forward() of another chunk returns.
  Tensor empty_stream() const { return network_.empty_stream(rows_.own.num_tokens()); }

  /// Log-probs and entropies of the response tokens, [T] each, on the CPU. `hidden_LH`: of the last
  /// chunk. `lists_centered`: also those of MicroBatch::centered.
  kernels::LogProbs log_probs(const Tensor& hidden_LH, const kernels::LinearLogProbOptions& options,
                              bool lists_centered = false) const;
  /// The values of a critic, [T], on the CPU.
  Tensor values(const Tensor& hidden_LH, const model::ValueHead& head) const;

 private:
  /// Of its forward pass, logits included.
  kernels::Arithmetic arithmetic() const;
  void ask_routers(const comm::Mesh& mesh, RoutingOfPass& routing);
  /// Some of `size` scored ids, which other ranks have the rest of.
  struct Scored {
    Tensor id;   // int64, ascending
    Tensor row;  // of the rank's rows: whose hidden state predicts it
    int64_t size;
  };
  Scored own_of(const Tensor& row_of_id) const;
  /// Numbers of the own ids to those of all, and on the CPU.
  Tensor of_all_ranks(const Tensor& x, const Scored& scored) const;
  Tensor of_all_ranks(const Tensor& x, const Tensor& place, int64_t size) const;

  model::Network& network_;
  const MicroBatch& micro_batch_;
  at::Device device_;
  model::ContextRows rows_;
  model::TreeAttention attention_;
  model::RouterPass routers_;
};

}  // namespace slime::train
