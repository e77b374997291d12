#pragma once

/// Rows of a step that draw a token: of each chunk that completes, its last row, and with drafts also the row in front
/// of each.

#include <cstddef>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "engine/step_runner.h"

namespace slime::engine {

struct DrawnRow {
  std::size_t chunk = 0;
  int64_t draw = 0;      // of the chunk's: 0 is the token that comes where its first draft stands
  int64_t row = 0;       // counted over the rows of all chunks
  int64_t position = 0;  // of the token that is drawn, in its request
};

/// In the order of the rows.
std::vector<DrawnRow> drawn_rows(std::span<const Chunk> chunks);

/// Rows whose logits exist at once where a step in training arithmetic draws on a GPU (gpu_prompt_scores.cpp has the
/// same): there a row's logits are the same in any block.
inline constexpr int64_t kDrawnBlockRows = 256;

/// Of a step on a GPU at most, and at least those of a recorded step.
int64_t most_drawn_rows(const StepRunnerConfig& config);

}  // namespace slime::engine
