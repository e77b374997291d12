#pragma once

/// What a trainer takes of a device's memory, before it has taken it: the same sums that its code
/// makes, so that a run that cannot fit says so at its start. What layers keep for the backward
/// pass they tell themselves (model/costs.h).

#include <cstdint>

#include "model/network.h"
#include "train/trainer.h"

namespace slime::train {

struct TrainMemory {
  int64_t weights = 0;
  int64_t gradients = 0;    // given back between steps (Trainer::release_gradients)
  int64_t optimizer = 0;    // master weights and both moments
  int64_t others = 0;       // reference, teacher, lagging actor; critic with all that is its own
  int64_t activations = 0;  // of one micro-batch, at the end of its forward pass
  int64_t logits = 0;       // a chunk of them, and its gradient
  int64_t all_logits = 0;   // of one micro-batch, in float32: kept where there is room

  int64_t resident() const { return weights + optimizer + others; }
  int64_t peak() const { return resident() + gradients + activations + logits; }
};

/// Bytes of logits that may wait for the backward (kernels::LinearLogProbOptions::kept_bytes) where
/// `available` bytes are free beside what a micro-batch takes. Few are always kept, and counted as a
/// chunk; the loss and the head's backward are done before anything else takes memory.
int64_t kept_logits(int64_t available, int64_t all_logits);

/// The same on a GPU behind the forward pass of `hidden_LH`, from what the device has now.
/// `replays_top_p`: the backward of a chunk is single operations on all of it.
int64_t kept_logits_now(const model::ModelConfig& model, const Tensor& hidden_LH,
                        bool replays_top_p);

/// `micro_batch_tokens`: at most so many are computed together.
TrainMemory predict_memory(model::Network& network, const model::Precision& precision,
                           const TrainConfig& config, int64_t micro_batch_tokens);

}  // namespace slime::train
