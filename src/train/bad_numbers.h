#pragma once

/// Diagnosis of non-finite numbers, for the message of a training step that had to be left out.

#include <span>
#include <string>

#include "model/weights.h"
#include "train/micro_batch.h"

namespace slime::train {

/// A per-token column by the name people know it by.
struct NamedColumn {
  const char* name;
  Tensor x_T;  // floating point; undefined: this run has no such column
};

/// "sample 17, response token 3 (id 42): log-prob is nan": the first token with a bad number,
/// in the first column that has one (give causes before effects). Empty when there is none.
std::string first_bad_token(const TrainBatch& batch, const MicroBatch& micro_batch,
                            std::span<const NamedColumn> columns);

/// "3, 17": the samples that a message is about.
std::string ordinals_of(const TrainBatch& batch, const Indices& samples);

/// "model.embed_tokens.weight, model.norm.weight and 3 more": tensors with a bad number in their
/// gradient.
std::string name_bad_gradients(const model::Weights& weights);

}  // namespace slime::train
