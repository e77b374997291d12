#pragma once

/// Pairs of rows and keys that levels of attention see, for tests.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kernels/gpu/attention_levels.h"

namespace slime::kernels {

using Seen = std::set<std::pair<int64_t, int64_t>>;

/// (row, key) pairs of the levels; one that two pairs have is an error.
inline Seen seen_by(const std::vector<AttentionLevel>& levels) {
  Seen seen;
  for (const AttentionLevel& level : levels) {
    std::set<int64_t> queries, keys;  // of this level: no two pairs have one
    for (const AttentionPair& pair : level.pairs) {
      EXPECT_LT(pair.query_begin, pair.query_end);
      EXPECT_LT(pair.key_begin, pair.key_end);
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q)
        EXPECT_TRUE(queries.insert(q).second) << "query " << q << " twice in a level";
      for (int64_t k = pair.key_begin; k < pair.key_end; ++k)
        EXPECT_TRUE(keys.insert(k).second) << "key " << k << " twice in a level";
      for (int64_t q = pair.query_begin; q < pair.query_end; ++q) {
        for (int64_t k = pair.key_begin; k < pair.key_end; ++k) {
          if (level.causal && k - pair.key_begin > q - pair.query_begin) continue;
          EXPECT_TRUE(seen.emplace(q, k).second) << q << " sees " << k << " twice";
        }
      }
    }
  }
  return seen;
}

}  // namespace slime::kernels
