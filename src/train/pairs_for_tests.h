#pragma once

/// Prompts with a better and a worse response, for tests of the trainer's objectives.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/sample.h"

namespace slime::train {

/// `count` prompts of two responses each; the first of a pair is the better one.
inline std::vector<Group> better_and_worse_pairs(int64_t count) {
  std::vector<Group> groups;
  for (int64_t g = 0; g < count; ++g) {
    Group group{g, {}};
    for (int64_t k = 0; k < 2; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + k;
      sample.prompt_length = 4;
      sample.status = Status::kCompleted;
      for (int64_t t = 0; t < 4; ++t) sample.tokens.push_back(static_cast<TokenId>(10 + 7 * g + t));
      for (int64_t t = 0; t < 3 + k; ++t)
        sample.tokens.push_back(static_cast<TokenId>(50 + 9 * k + 5 * g + t));
      sample.reward = k == 0 ? 1.0 : 0.0;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace slime::train
