#include "setup/periodic.h"

#include <gtest/gtest.h>

#include <vector>

namespace slime::setup {
namespace {

std::vector<int64_t> due(const Period& period, int64_t num_rollouts) {
  std::vector<int64_t> rollouts;
  for (int64_t rollout = 0; rollout < num_rollouts; ++rollout)
    if (is_due(rollout, period)) rollouts.push_back(rollout);
  return rollouts;
}

TEST(Periodic, EpochsEndInTheRolloutThatHasTheirLastRow) {
  // Rows 0 to 7, 8 to 15, 16 to 23, 24 to 31 of epochs of 10.
  const EpochRows rows{.in_epoch = 10, .in_rollout = 8};
  EXPECT_EQ(due({.interval = 100, .epoch = rows, .num_rollouts = {}}, 4),
            (std::vector<int64_t>{1, 2, 3}));
  // Batches that divide the rows: at the ends that the original has.
  const EpochRows even{.in_epoch = 12, .in_rollout = 4};
  EXPECT_EQ(due({.interval = 100, .epoch = even, .num_rollouts = {}}, 9),
            (std::vector<int64_t>{2, 5, 8}));
  // Two epochs in one rollout are one end.
  const EpochRows few{.in_epoch = 3, .in_rollout = 8};
  EXPECT_EQ(due({.interval = 100, .epoch = few, .num_rollouts = {}}, 2),
            (std::vector<int64_t>{0, 1}));
}

TEST(Periodic, WithoutAnIntervalNothingIsDue) {
  const EpochRows rows{.in_epoch = 10, .in_rollout = 8};
  EXPECT_TRUE(due({.interval = {}, .epoch = rows, .num_rollouts = 4}, 4).empty());
}

}  // namespace
}  // namespace slime::setup
