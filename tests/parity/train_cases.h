#pragma once

/// Batches and networks for the tests of the trainer.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/sample.h"
#include "train/trainer.h"

namespace slime::parity {

inline const std::string kModels = SLIME_SOURCE_DIR "/tests/fixtures/models/";

/// `num_groups` prompts with `group_size` responses each; the first tokens of the prompts are
/// common to all, and some responses start alike. Rewards and engine log-probs are made up, masks
/// have holes.
inline std::vector<Group> made_up_groups(int64_t num_groups, int64_t group_size,
                                         int64_t vocab_size) {
  uint64_t state = 12345;
  const auto draw = [&](int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
  };
  std::vector<Group> groups;
  for (int64_t g = 0; g < num_groups; ++g) {
    std::vector<TokenId> prompt{5, 6, 7, 8, 9, 10};
    for (int64_t p = 4 + draw(6); p > 0; --p)
      prompt.push_back(static_cast<TokenId>(draw(vocab_size)));
    Group group{g, {}};
    for (int64_t k = 0; k < group_size; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = g * group_size + k;
      sample.index_in_group = k;
      sample.status = Status::kCompleted;
      sample.prompt_length = static_cast<int64_t>(prompt.size());
      sample.tokens = prompt;
      for (int64_t t = 0; t < 3; ++t) {
        sample.tokens.push_back(static_cast<TokenId>(k < 2 ? 11 + t : draw(vocab_size)));
      }
      for (int64_t t = draw(12); t > 0; --t)
        sample.tokens.push_back(static_cast<TokenId>(draw(vocab_size)));
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        sample.log_probs.push_back(-0.5f - 0.01f * static_cast<float>(draw(400)));
        sample.loss_mask.push_back(k == 1 && t % 3 == 1 ? 0 : 1);
      }
      sample.reward = static_cast<double>(draw(5)) / 4;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// What a batch comes to, however it was cut.
struct Outcome {
  algo::MetricSums sums;
  Tensor grad;
};

/// In float64: gradients are the same to 1e-12 of the largest, sums to `tolerance` of themselves,
/// or of 1 where they are smaller.
inline void expect_same(const Outcome& other, const Outcome& plain, double tolerance) {
  const double size = plain.grad.abs().max().item<double>();
  ASSERT_GT(size, 1e-3);
  EXPECT_LT((other.grad - plain.grad).abs().max().item<double>(), 1e-12 * size);
  ASSERT_EQ(other.sums.size(), plain.sums.size());
  for (const auto& [name, value] : plain.sums)
    EXPECT_NEAR(other.sums.at(name), value, tolerance * std::max(1.0, std::abs(value))) << name;
}

/// Clipping, an entropy and a KL term, log-probs of the engine.
inline train::TrainConfig grpo_config() {
  train::TrainConfig config;
  config.policy.objective = algo::TokenClip{0.2, 0.28, std::nullopt};
  config.policy.use_rollout_logprobs = true;
  config.policy.entropy_coef = 0.01;
  config.policy.kl_loss = algo::KlLoss{algo::KlType::kK3, 0.1, true};
  config.temperature = 0.8;
  return config;
}

}  // namespace slime::parity
