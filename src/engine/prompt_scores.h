#pragma once

/// Log-probs of prompt tokens, for requests that want them (logprob_start_len): which ones a chunk gives,
/// and what a request is told.
///
/// They are computed with the step and told when it is collected, so that a step that scores is not
/// waited for.

#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "kernels/cpu/sample.h"

namespace slime::engine {

/// Tokens [begin, end) of a request. The hidden state of position p - 1 scores the token at p.
struct ScoredPositions {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end > begin ? end - begin : 0; }
};

/// Targets of the chunk's rows; before it is advanced.
ScoredPositions scored_positions(const Chunk& chunk);

inline bool scores_prompt(const Chunk& chunk) { return scored_positions(chunk).count() > 0; }

/// The row of the chunk that scores the first of them; the others follow.
inline int64_t first_scoring_row(const Chunk& chunk, const ScoredPositions& scored) {
  return scored.begin - 1 - chunk.request->num_computed;
}

/// The chunk was launched: later ones score what is behind. Returns how many log-probs will come. That
/// the first token has none is told here.
int64_t begin_scores(const Chunk& chunk);

/// They have come: appends them to the pending update.
void append_scores(Request& request, std::vector<kernels::SampledToken> scores);

/// The weights changed, and no step that scores is in flight: scores of half a prompt are of those before,
/// and are made again with the rest.
void forget_half_scores(Request& request);

}  // namespace slime::engine
