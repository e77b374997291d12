#pragma once

/// Memory of one trainer rank, predicted: one record and the one formula that fills it.
///
/// The memory table of a run asks for the rank that it is (estimate/memory_needs.h), `slime plan`
/// for each pipeline stage of each layout (estimate/stages.h). What layers keep for the backward
/// pass they say themselves (model/costs.h).

#include <cstdint>
#include <vector>

#include "comm/parallel_layout.h"
#include "estimate/model_shape.h"
#include "model/network.h"
#include "train/trainer.h"

namespace slime::estimate {

/// In bytes.
struct TrainerMemory {
  int64_t weights = 0;
  int64_t gradients = 0;    // given back between steps (Trainer::release_gradients)
  int64_t optimizer = 0;    // master weights and both moments, the rank's shard
  int64_t others = 0;       // reference, teacher, lagging actor; critic with all that is its own
  int64_t activations = 0;  // of the micro-batches under way, at the end of a forward pass
  int64_t logits = 0;       // a chunk of them, and its gradient
  int64_t all_logits = 0;   // of one micro-batch, in float32: kept where there is room

  int64_t resident() const { return weights + optimizer + others; }
  int64_t peak() const { return resident() + gradients + activations + logits; }
};

/// A trainer rank: its part of the model and of the work.
struct TrainerRank {
  // Of the model, as the rank holds it.
  int64_t dense = 0;    // parameters that all ranks of dp x cp share
  int64_t experts = 0;  // those of routed experts, which ranks of edp share
  /// Numbers of adapters, which are trained in the place of the parameters; 0: there are none. Those of
  /// routed experts apart, as above.
  int64_t adapters = 0;
  int64_t expert_adapters = 0;
  std::vector<model::Costs> blocks;  // of whole tensors
  int64_t hidden = 0;
  int64_t vocab = 0;
  bool has_head = true;  // the last pipeline stage
  AttentionShape attention;

  comm::ParallelLayout layout;
  model::Precision precision;  // on another device than the CPU: as a GPU computes
  model::Recompute recompute = model::Recompute::kNone;
  bool orders_backward = false;  // attention's gradients in one order
  bool optimizer_on_host = false;
  int64_t copies = 0;  // further networks' weights: reference, teacher, lagging actor, critic
  int64_t adapter_copies = 0;  // of adapters alone: lagging actor
  bool has_critic = false;
  bool critic_optimizer_on_host = false;

  int64_t tokens = 0;         // of a micro-batch of this rank, at most
  int64_t micro_batches = 1;  // under way together

  int64_t parameters() const { return dense + experts; }
};

TrainerMemory memory_of(const TrainerRank& rank);

/// The rank that trains `network` with `config`; the first of its pipeline.
TrainerRank rank_of(model::Network& network, const model::Precision& precision,
                    const train::TrainConfig& config, const comm::ParallelLayout& layout,
                    int64_t micro_batch_tokens);

}  // namespace slime::estimate
