#include "model/layers/row_shares.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/single_group.h"
#include "comm/unconnected_group.h"

namespace slime::model {
namespace {

TEST(RowShares, TheLastRanksMayHaveFewerRowsOrNone) {
  comm::UnconnectedGroup ranks(1, 3);  // the second of three
  EXPECT_EQ(equal_rows(8, ranks).counts, (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(equal_rows(4, ranks).counts, (std::vector<int64_t>{2, 2, 0}));
  EXPECT_EQ(equal_rows(1, ranks).counts, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(equal_rows(0, ranks).counts, (std::vector<int64_t>{0, 0, 0}));
  const RowShares shares = equal_rows(8, ranks);
  EXPECT_EQ(shares.own(), 3);
  EXPECT_EQ(shares.begin(), 3);
  EXPECT_EQ(shares.total(), 8);
}

TEST(RowShares, OneRankHasAllRowsAsTheyAre) {
  comm::SingleGroup alone;
  const RowShares shares = told_rows(5, alone);
  const Tensor x = at::arange(10, at::kDouble).view({5, 2});
  for (const auto& deal : {own_rows, joined_rows, gathered_rows, summed_rows})
    EXPECT_TRUE(deal(x, shares).is_same(x));
}

}  // namespace
}  // namespace slime::model
