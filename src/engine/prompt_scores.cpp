#include "engine/prompt_scores.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace slime::engine {

ScoredPositions scored_positions(const Chunk& chunk) {
  const Request& request = *chunk.request;
  if (!request.wants_input_scores()) return {};
  return {.begin = std::max(
              {request.num_scored, request.first_scored_position(), request.num_computed + 1}),
          .end = std::min(request.num_computed + chunk.num_tokens + 1, request.prompt_length)};
}

int64_t begin_scores(const Chunk& chunk) {
  Request& request = *chunk.request;
  const ScoredPositions scored = scored_positions(chunk);
  if (scored.begin == 1 && request.num_scored == 0 && request.client.logprob_start_len == 0) {
    request.pending.input_log_probs.emplace_back(std::nullopt);
    if (request.client.top_logprobs_num > 0) request.pending.input_top.emplace_back();
    if (!request.client.token_ids_logprob.empty()) request.pending.input_asked.emplace_back();
  }
  request.num_scored = std::max(request.num_scored, scored.end);
  return scored.count();
}

void append_scores(Request& request, std::vector<kernels::SampledToken> scores) {
  for (kernels::SampledToken& score : scores) {
    request.pending.input_log_probs.emplace_back(score.log_prob);
    if (request.client.top_logprobs_num > 0)
      request.pending.input_top.push_back(std::move(score.top));
    if (!request.client.token_ids_logprob.empty())
      request.pending.input_asked.push_back(std::move(score.asked));
  }
}

void forget_half_scores(Request& request) {
  if (request.num_scored >= request.prompt_length) return;
  request.num_scored = 0;
  request.pending.input_log_probs.clear();
  request.pending.input_top.clear();
  request.pending.input_asked.clear();
}

}  // namespace slime::engine
