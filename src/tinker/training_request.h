#pragma once

/// The body of forward_backward as the trainer's batch.
///
///   {"data": [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]},
///              "loss_fn_inputs": {"target_tokens": {"data": [6, 7, 8], "dtype": "int64", "shape": [3]},
///                                 "weights": {"data": [0, 1, 1], "dtype": "float32", "shape": [3]}}}],
///    "loss_fn": "cross_entropy", "loss_fn_config": {}}
///
/// is one sample 5 6 7 8 whose last two tokens train. Targets are the next tokens. Beside Tinker's fields a
/// datum may have `num_scored`: the columns are those of the last so many targets, and what comes before is
/// a prompt, of which no log-prob is computed.

#include <cstdint>

#include "core/field_reader.h"
#include "tinker/token_losses.h"
#include "train/given_pass.h"

namespace slime::tinker {

/// Of the model that is trained.
struct ModelLimits {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
};

/// Throws ConfigError that names the datum and the field.
train::GivenBatch read_batch(const FieldReader& input, const TokenLoss& loss,
                             const ModelLimits& limits);

/// The tokens of a `model_input` or a `prompt`: its chunks, end to end.
std::vector<TokenId> read_chunks(const FieldReader& model_input, int64_t vocab_size);

}  // namespace slime::tinker
