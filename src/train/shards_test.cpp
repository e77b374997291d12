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

TEST(Shards, DividedExpertsAreAPartOfTheirOwn) {
  const std::vector<ShardedPart> parts = sharded_parts(640, 256);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts[0].axis, comm::Axis::kDpCp);
  EXPECT_EQ(shards_of(parts[0], 2), (std::vector<comm::Range>{{0, 128}, {128, 256}}));
  EXPECT_EQ(parts[1].axis, comm::Axis::kEdp);
  EXPECT_EQ(shards_of(parts[1], 3), (std::vector<comm::Range>{{256, 384}, {384, 512}, {512, 640}}));
  EXPECT_EQ(sharded_parts(640, 640).size(), 1);
}

}  // namespace
}  // namespace slime::train
