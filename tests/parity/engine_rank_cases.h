#pragma once

/// Test cases of engines of several ranks, compared with one rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine_fixture.h"

namespace slime::testing {

/// A group of four, prompts longer than a chunk, greedy, sampled, penalties, cuts, scores and stop ids.
inline std::vector<engine::GenerateRequest> workload(int64_t vocabulary, int64_t num_tokens = 24) {
  std::vector<engine::GenerateRequest> requests;
  for (int i = 0; i < 14; ++i) {
    const auto prompt =
        some_tokens(i < 4 ? 45 : 3 + 7 * i, i < 4 ? 1 : i, std::min<int64_t>(300, vocabulary));
    requests.push_back(i % 3 == 2 ? greedy_request(prompt, num_tokens)
                                  : sampled_request(prompt, num_tokens, 100 + i));
    engine::GenerateRequest& request = requests.back();
    request.rid = "r" + std::to_string(i);
    if (i % 4 == 1) request.sampling.frequency_penalty = 0.7;
    if (i % 5 == 0) request.sampling.top_p = 0.8;
    if (i == 7) request.sampling.top_k = 5;
    if (i % 6 == 0) request.top_logprobs_num = 3;
    if (i == 4 || i == 9) request.logprob_start_len = 0;
    if (i == 10) {
      request.sampling.ignore_eos = false;
      for (TokenId id = 0; id < vocabulary; id += 9) request.sampling.stop_token_ids.push_back(id);
      request.sampling.min_new_tokens = 4;
    }
  }
  return requests;
}

/// `rounding`: of float32 sums in another order, through some layers.
inline void expect_same(const std::vector<engine::GenerateUpdate>& got,
                        const std::vector<engine::GenerateUpdate>& expected,
                        double rounding = 1e-4) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(expected[i].rid);
    EXPECT_EQ(got[i].output_ids, expected[i].output_ids);
    ASSERT_EQ(got[i].output_log_probs.size(), expected[i].output_log_probs.size());
    for (std::size_t t = 0; t < got[i].output_log_probs.size(); ++t)
      EXPECT_NEAR(got[i].output_log_probs[t], expected[i].output_log_probs[t], rounding);
    ASSERT_EQ(got[i].input_log_probs.size(), expected[i].input_log_probs.size());
    for (std::size_t t = 1; t < got[i].input_log_probs.size(); ++t)
      EXPECT_NEAR(*got[i].input_log_probs[t], *expected[i].input_log_probs[t], rounding);
    ASSERT_EQ(got[i].output_top.size(), expected[i].output_top.size());
    for (std::size_t t = 0; t < got[i].output_top.size(); ++t)
      EXPECT_EQ(got[i].output_top[t].size(), expected[i].output_top[t].size());
    ASSERT_TRUE(got[i].finish && expected[i].finish);
    EXPECT_EQ(got[i].finish->kind, expected[i].finish->kind) << got[i].finish->message;
    EXPECT_EQ(got[i].finish->matched, expected[i].finish->matched);
  }
}

}  // namespace slime::testing
