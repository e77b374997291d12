#pragma once

/// The samples of a trainer's call as users' functions see them: the original's names for columns, with
/// the tensors in shared memory (docs/plugin_protocol.md).

#include <span>
#include <string>

#include "core/json.h"
#include "plugin/shared_tensors.h"
#include "train/train_batch.h"

namespace slime::plugin {

/// tokens, unconcat_tokens, total_lengths, response_lengths and rollout_mask_sums of these samples, in
/// this order.
json::object batch_words(const train::TrainBatch& batch, std::span<const int64_t> samples,
                         SharedTensors& tensors);

/// A list of one tensor for each sample: `column_T` has the numbers of their response tokens end to
/// end. Undefined: null, as the original has it for a column that a run lacks.
json::value rows_word(const Tensor& column_T, SharedTensors& tensors);
json::value rows_word(const SharedTensor& column_T);

/// "samples 3, 5": whom a failure is about.
std::string subject_of(const train::TrainBatch& batch, std::span<const int64_t> samples);

}  // namespace slime::plugin
