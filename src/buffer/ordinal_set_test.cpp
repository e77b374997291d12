#include "buffer/ordinal_set.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace slime::buffer {
namespace {

TEST(OrdinalSet, NeighboursBecomeOneInterval) {
  OrdinalSet set;
  for (const int64_t ordinal : {5, 3, 9, 4}) EXPECT_TRUE(set.insert(ordinal));
  EXPECT_EQ(set.num_intervals(), 2);
  EXPECT_FALSE(set.insert(4));
  EXPECT_EQ(set.size(), 4);
  EXPECT_TRUE(set.contains(3));
  EXPECT_FALSE(set.contains(6));
  EXPECT_FALSE(set.contains(2));
}

TEST(OrdinalSet, HoldsTheSmallestAndTheLargestNumber) {
  OrdinalSet set;
  for (const int64_t ordinal :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    EXPECT_TRUE(set.insert(ordinal));
    EXPECT_TRUE(set.contains(ordinal));
    EXPECT_FALSE(set.insert(ordinal));
  }
}

TEST(OrdinalSet, IsASetForAnyOrder) {
  std::mt19937_64 random(5);
  OrdinalSet set;
  std::set<int64_t> twin;
  for (int i = 0; i < 20000; ++i) {
    const auto ordinal = static_cast<int64_t>(random() % 3000);
    ASSERT_EQ(set.contains(ordinal), twin.contains(ordinal));
    ASSERT_EQ(set.insert(ordinal), twin.insert(ordinal).second);
  }
  EXPECT_EQ(set.size(), static_cast<int64_t>(twin.size()));
}

TEST(OrdinalSet, TenMillionInOrderAreOneInterval) {
  OrdinalSet set;
  for (int64_t ordinal = 0; ordinal < 10'000'000; ++ordinal) set.insert(ordinal);
  EXPECT_EQ(set.num_intervals(), 1);
  EXPECT_EQ(set.size(), 10'000'000);
}

}  // namespace
}  // namespace slime::buffer
