#pragma once

/// Batches with a record of their sampler, for tests of score centering.

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "train_cases.h"

namespace slime::parity {

/// Log-probs of `count` ids that add up to `mass`, another mixture for each `seed`.
inline std::vector<float> made_up_log_probs(int64_t count, int64_t seed, double mass) {
  std::vector<double> shares;
  for (int64_t i = 0; i < count; ++i)
    shares.push_back(1 + static_cast<double>((seed * 7 + i * i * 13) % 11));
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<float> log_probs;
  for (const double share : shares)
    log_probs.push_back(static_cast<float>(std::log(share / total * mass)));
  return log_probs;
}

/// Different ids below `vocab_size`, `first` the first.
inline std::vector<TokenId> made_up_ids(TokenId first, int64_t count, int64_t seed,
                                        int64_t vocab_size) {
  std::vector<TokenId> ids{first};
  std::set<TokenId> known{first};
  for (int64_t i = 0; static_cast<int64_t>(ids.size()) < count; ++i) {
    const auto id = static_cast<TokenId>((seed * 31 + i * 17 + 3) % vocab_size);
    if (known.insert(id).second) ids.push_back(id);
  }
  return ids;
}

/// With the support of each token, of one to five ids; tokens that are not trained have none.
inline std::vector<Group> groups_with_supports(std::vector<Group> groups, int64_t vocab_size) {
  int64_t seed = 0;
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      sample.top_p_offsets = {0};
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        if (sample.loss_mask[t] == 1) {
          const int64_t count = 1 + ++seed % 5;
          const TokenId drawn = sample.tokens[sample.prompt_length + t];
          const auto ids = made_up_ids(drawn, count, seed, vocab_size);
          const auto log_probs = made_up_log_probs(count, seed, 1);
          sample.top_p_ids.insert(sample.top_p_ids.end(), ids.begin(), ids.end());
          sample.top_p_log_probs.insert(sample.top_p_log_probs.end(), log_probs.begin(),
                                        log_probs.end());
          sample.log_probs[t] = log_probs.front();
        }
        sample.top_p_offsets.push_back(static_cast<int64_t>(sample.top_p_ids.size()));
      }
    }
  }
  return groups;
}

/// With the `width` likeliest ids of each token; what was drawn is among them or not.
inline std::vector<Group> groups_with_heads(std::vector<Group> groups, int64_t width,
                                            int64_t vocab_size) {
  int64_t seed = 0;
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      for (int64_t t = 0; t < sample.response_length(); ++t) {
        ++seed;
        const TokenId drawn = sample.tokens[sample.prompt_length + t];
        const TokenId first =
            seed % 3 == 0 ? static_cast<TokenId>((drawn + 1) % vocab_size) : drawn;
        const auto ids = made_up_ids(first, width, seed, vocab_size);
        const auto log_probs = made_up_log_probs(width, seed, 0.8);
        sample.topk_ids.insert(sample.topk_ids.end(), ids.begin(), ids.end());
        sample.topk_log_probs.insert(sample.topk_log_probs.end(), log_probs.begin(),
                                     log_probs.end());
      }
    }
  }
  return groups;
}

/// REINFORCE with scores centered, truncated weights and the other terms of a loss.
inline train::TrainConfig centering_config(bool lists_support, int64_t width) {
  train::TrainConfig config = grpo_config();
  config.policy.objective = algo::Reinforce{};
  config.policy.kl_loss->unbiased = false;
  config.policy.correction = algo::TruncatedImportance{0.4, 1.6};
  config.policy.centering = algo::ScoreCentering{lists_support, width};
  config.replays_top_p = lists_support;
  return config;
}

}  // namespace slime::parity
