#pragma once

/// Datums of a request as the trainer's batch.
///
///   tokens 5 6 7, target_tokens 6 7 8, weights 0 1 1
///
/// is one sample 5 6 7 8 whose last two tokens train. Targets that are not the next tokens (clients put zeros
/// where nothing trains) become targets of the sample. With `num_scored` the columns are those of the last so
/// many targets, and what comes before is a prompt, of which no log-prob is computed.

#include <cstdint>

#include "model/config.h"
#include "tinker/token_losses.h"
#include "tinker/training_body.h"
#include "train/given_pass.h"

namespace slime::tinker {

/// Of the model that is trained.
struct ModelLimits {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
};

inline ModelLimits limits_of(const model::ModelConfig& config) {
  return {.vocab_size = config.vocab_size, .max_positions = config.max_positions};
}

/// Throws ConfigError that names the datum and the field.
train::GivenBatch read_batch(const TrainingBody& body, const TokenLoss& loss,
                             const ModelLimits& limits);

}  // namespace slime::tinker
