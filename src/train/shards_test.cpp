#include "train/shards.h"

#include <gtest/gtest.h>

namespace slime::train {
namespace {

using Shards = std::vector<comm::Range>;

TEST(Shards, BeginAtCacheLinesAndTheLastOnesMayBeShorterOrEmpty) {
  EXPECT_EQ(shards_of(256, 2), (Shards{{0, 128}, {128, 256}}));
  EXPECT_EQ(shards_of(320, 2), (Shards{{0, 192}, {192, 320}}));
  EXPECT_EQ(shards_of(65, 3), (Shards{{0, 64}, {64, 65}, {65, 65}}));
  EXPECT_EQ(shards_of(127, 1), (Shards{{0, 127}}));
  EXPECT_EQ(shards_of(0, 2), (Shards{{0, 0}, {0, 0}}));
}

TEST(Shards, CoverTheBufferForEveryNumberOfRanks) {
  for (int ranks = 1; ranks < 20; ++ranks) {
    for (const int64_t n : {1, 127, 128, 129, 100'000}) {
      int64_t end = 0;
      for (const comm::Range& shard : shards_of(n, ranks)) {
        EXPECT_EQ(shard.begin, end);
        EXPECT_TRUE(shard.begin % 64 == 0 || shard.size() == 0);
        end = shard.end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

}  // namespace
}  // namespace slime::train
