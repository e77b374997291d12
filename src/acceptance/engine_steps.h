#pragma once

/// An engine's greedy answers on a tiny network, with and without recorded steps.

#include <vector>

#include "core/sample.h"
#include "model/network.h"

namespace slime::acceptance {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
};

/// Greedy answers of `new_tokens` tokens to made-up prompts of ragged lengths, all at once.
std::vector<Answer> greedy_answers(model::Network& network, bool records_steps, int64_t prompts,
                                   int64_t new_tokens);

/// Answers that differ in a token or in a bit of a log-prob.
int64_t answers_that_differ(const std::vector<Answer>& a, const std::vector<Answer>& b);

}  // namespace slime::acceptance
