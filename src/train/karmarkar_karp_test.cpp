#include "train/karmarkar_karp.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::train {
namespace {

TEST(KarmarkarKarp, RefusesMoreSetsThanItemsAndUnevenEqualSets) {
  const std::vector<double> three{1, 2, 3};
  EXPECT_THROW(partition_evenly(three, 4, false), ConfigError);
  EXPECT_THROW(partition_evenly(three, 2, true), ConfigError);
  EXPECT_EQ(partition_evenly(three, 3, true).size(), 3u);
}

TEST(KarmarkarKarp, FindsTheEvenSplitOfATextbookExample) {
  const std::vector<double> weights{4, 5, 6, 7, 8};
  EXPECT_EQ(partition_evenly(weights, 2, false),
            (std::vector<std::vector<int64_t>>{{0, 1, 3}, {2, 4}}));
}

}  // namespace
}  // namespace slime::train
