#pragma once

/// Tokens of one choice of an answer, and what the engine said of each.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/client.h"

namespace slime::engine {

struct ChoiceTokens {
  std::vector<std::optional<float>> input_log_probs;  // of the prompt, as far as asked for
  TopLogProbs input_top;
  std::vector<TokenId> ids;
  std::vector<float> log_probs;        // only with return_logprob
  std::vector<float> free_log_probs;   // only with return_free_logprobs
  TopLogProbs top;                     // only with top_logprobs_num > 0
  std::vector<TokenId> top_p_ids;      // only with return_top_p_token_ids, flat
  std::vector<int64_t> top_p_counts;   // how many of them per token
  std::vector<float> top_p_log_probs;  // only with return_top_p_log_probs
  int64_t num_constrained = 0;         // the last so many were drawn under a grammar

  void add(const GenerateUpdate& update);
};

}  // namespace slime::engine
