#pragma once

/// Missing tokens of a request that a step computes.

#include <algorithm>
#include <span>
#include <vector>

#include "engine/request.h"

namespace slime::engine {

/// In which order a step adds (docs/decisions/0167-verification.md).
enum class StepArithmetic {
  kFast,      // as is fastest for its rows; of an engine that verifies nothing, every step
  kTraining,  // as the trainer's forward pass, whatever rows are in the step
};

/// The next `num_tokens` missing tokens of a request. The last `num_drafts` of them are guesses
/// (docs/decisions/0163-drafts.md), and the last of its tokens while the step is launched.
struct Chunk {
  Request* request = nullptr;
  int64_t num_tokens = 0;
  int64_t num_drafts = 0;
  /// The draft layer or model takes in those of its tokens that are right (docs/decisions/0164-mtp-layers.md),
  /// and behind the token that is drawn last it foretells so many.
  bool feeds_draft_layer = false;
  int64_t num_foretold = 0;
  /// Of all chunks of a step the same.
  StepArithmetic arithmetic = StepArithmetic::kFast;
  /// Its token is a draft for a later step in training arithmetic, which writes its keys and values again
  /// (EngineConfig::verify_tokens). One token, which draws the next; fast.
  bool is_tentative = false;
  bool completes() const { return num_tokens == request->num_missing(); }
};

inline bool has_drafts(std::span<const Chunk> chunks) {
  return std::ranges::any_of(chunks, [](const Chunk& chunk) { return chunk.num_drafts > 0; });
}

/// The media rows of a chunk whose first row is `row` of a step.
inline void append_media(std::vector<MediaRun>& runs, const Chunk& chunk, int64_t row) {
  const Request& request = *chunk.request;
  if (request.client.media.empty()) return;
  append_runs(runs, request.client.media, request.num_computed,
              request.num_computed + chunk.num_tokens, row);
}

inline bool has_media(const Chunk& chunk) {
  std::vector<MediaRun> runs;
  append_media(runs, chunk, 0);
  return !runs.empty();
}

}  // namespace slime::engine
