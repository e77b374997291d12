#pragma once

/// Log-probs of prompt tokens, for requests that want them (logprob_start_len).
///
/// Dimensions: T tokens of the step, H hidden, P scored positions.

#include <functional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/scheduler.h"
#include "kernels/cpu/sample.h"

namespace slime::engine {

/// Scores token targets[i] by hidden_PH row i at temperature 1, with the num_top best ones.
using ScoreRowsFn = std::function<std::vector<kernels::SampledToken>(
    const Tensor& hidden_PH, std::span<const TokenId> targets, int64_t num_top)>;

/// Log-probs of the chunk's prompt are still to be computed.
bool scores_prompt(const Chunk& chunk);

/// Appends what this step's rows of hidden_TH tell to the requests' pending updates.
void score_prompts(std::span<const Chunk> chunks, const Tensor& hidden_TH,
                   const ScoreRowsFn& score_rows);

}  // namespace slime::engine
