#pragma once

/// Requests and weights with which engines over layers that keep a state are tested, on the CPU and on a GPU.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine_fixture.h"

namespace slime::testing {

/// Fresh weights, large enough to matter, in the fixture's shape: three gated delta nets and one attention.
inline std::unique_ptr<model::Network> fresh_state_network(const model::Precision& precision) {
  model::ModelConfig config = model::read_model_config(std::filesystem::path(SLIME_SOURCE_DIR) /
                                                       "tests/fixtures/models/qwen3_5");
  config.initializer_range = 0.3;
  return model::make_network(config, precision, 4);
}

inline std::vector<TokenId> state_tokens(int64_t count, TokenId start = 3) {
  constexpr int64_t kVocabulary = 128;
  return some_tokens(count, start, kVocabulary);
}

/// A group of four, other prompts, greedy and sampled; the last prompt of `last` tokens.
inline std::vector<engine::GenerateRequest> state_workload(int64_t last) {
  std::vector<engine::GenerateRequest> requests;
  for (int i = 0; i < 12; ++i) {
    const auto prompt = state_tokens(i < 4 ? 45 : i == 11 ? last : 3 + 9 * i, i < 4 ? 1 : i);
    requests.push_back(i % 3 == 2 ? greedy_request(prompt, 30)
                                  : sampled_request(prompt, 30, 100 + i));
    requests.back().rid = "r" + std::to_string(i);
  }
  return requests;
}

/// Sums are taken in other orders, where chunks of prompts begin elsewhere and on another device.
inline void expect_same_response(const engine::GenerateUpdate& a, const engine::GenerateUpdate& b,
                                 double tolerance) {
  EXPECT_EQ(a.output_ids, b.output_ids) << a.rid;
  ASSERT_EQ(a.output_log_probs.size(), b.output_log_probs.size());
  for (std::size_t t = 0; t < a.output_log_probs.size(); ++t)
    EXPECT_NEAR(a.output_log_probs[t], b.output_log_probs[t], tolerance)
        << a.rid << ", token " << t;
}

/// What a response needs to be gone on from where it ended: begun with 12 of 30 tokens, then the rest, which finds all
/// but the newest token's state.
inline void expect_goes_on_from_its_end(TestEngine& bench) {
  const auto begun = bench.generate(greedy_request(state_tokens(40), 12));
  auto tokens = state_tokens(40);
  tokens.insert(tokens.end(), begun.output_ids.begin(), begun.output_ids.end());
  auto rest = greedy_request(tokens, 18);
  rest.num_sampled = 12;
  const auto done = bench.generate(rest);
  EXPECT_EQ(done.cached_tokens, 40 + 11);
  EXPECT_TRUE(bench.engine().flush_cache());
  const auto whole = bench.generate(greedy_request(state_tokens(40), 30));
  std::vector<TokenId> both = begun.output_ids;
  both.insert(both.end(), done.output_ids.begin(), done.output_ids.end());
  EXPECT_EQ(both, whole.output_ids);
}

}  // namespace slime::testing
