#include "engine/prompt_scores.h"

#include <algorithm>

namespace slime::engine {
namespace {

constexpr int64_t kScoredRows = 64;  // prompt positions whose logits exist at once

}  // namespace

bool scores_prompt(const Chunk& chunk) {
  const Request& request = *chunk.request;
  return request.wants_input_scores() && request.num_scored < request.prompt_length;
}

void score_prompts(std::span<const Chunk> chunks, const Tensor& hidden_TH,
                   const ScoreRowsFn& score_rows) {
  int64_t first_row = 0;  // of the chunk
  for (const Chunk& chunk : chunks) {
    Request& request = *chunk.request;
    const int64_t begin_row = first_row;
    first_row += chunk.num_tokens;
    if (!request.wants_input_scores()) continue;
    // The hidden state of position p scores the token at p + 1.
    int64_t position =
        std::max({request.num_scored, request.first_scored_position(), request.num_computed + 1});
    const int64_t end =
        std::min(request.num_computed + chunk.num_tokens + 1, request.prompt_length);
    if (position == 1 && request.num_scored == 0 && request.client.logprob_start_len == 0) {
      request.pending.input_log_probs.emplace_back(std::nullopt);
      if (request.client.top_logprobs_num > 0) request.pending.input_top.emplace_back();
    }
    while (position < end) {
      const int64_t count = std::min(kScoredRows, end - position);
      const Tensor hidden_PH =
          hidden_TH.narrow(0, begin_row + position - 1 - request.num_computed, count);
      auto scores = score_rows(hidden_PH, std::span(request.tokens).subspan(position, count),
                               request.client.top_logprobs_num);
      for (kernels::SampledToken& score : scores) {
        request.pending.input_log_probs.emplace_back(score.log_prob);
        if (request.client.top_logprobs_num > 0)
          request.pending.input_top.push_back(std::move(score.top));
      }
      position += count;
    }
    request.num_scored = std::max(request.num_scored, end);
  }
}

}  // namespace slime::engine
