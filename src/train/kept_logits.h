#pragma once

/// Logits of a micro-batch: their bytes, and how many of them wait for the backward.

#include <cstdint>

#include "core/tensor.h"
#include "model/config.h"

namespace slime::train {

/// Bytes of the logits of `tokens` tokens in float32. `vocab`: of a tensor-parallel rank.
int64_t all_logits_bytes(int64_t vocab, int64_t tokens);

/// Of a chunk of them and, in the backward, its gradient of `element` bytes a number; few logits are
/// one chunk.
int64_t chunk_logits_bytes(int64_t vocab, bool is_on_cpu, int64_t element, int64_t tokens);

/// Bytes of logits that may wait for the backward (kernels::LinearLogProbOptions::kept_bytes) where
/// `available` bytes are free next to what a micro-batch takes. Few are always kept, and counted as a
/// chunk; the loss and the head's backward are done before anything else takes memory.
int64_t kept_logits(int64_t available, int64_t all_logits);

/// The same on a GPU after the forward pass of `hidden_LH`, from what the device has now.
/// `replays_top_p`: the backward of a chunk is single operations on all of it.
int64_t kept_logits_now(const model::ModelConfig& model, const Tensor& hidden_LH,
                        bool replays_top_p);

}  // namespace slime::train
