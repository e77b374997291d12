#pragma once

#include <vector>

#include "core/random.h"
#include "core/sample.h"

namespace slime::bench {

/// Appends `count` tokens below `vocab_size`: the draws of `stream` from its `first` on.
inline void append_random_tokens(std::vector<TokenId>& tokens, int64_t count, int64_t vocab_size,
                                 uint64_t seed, int64_t stream, int64_t first = 0) {
  for (int64_t i = first; i < first + count; ++i) {
    const double draw = uniform(seed, static_cast<uint64_t>(stream), static_cast<uint64_t>(i));
    tokens.push_back(static_cast<TokenId>(draw * static_cast<double>(vocab_size)));
  }
}

}  // namespace slime::bench
