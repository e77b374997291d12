#include "loop/stalest_first.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/version_runs.h"

namespace slime::loop {
namespace {

Group group_of(int64_t ordinal, std::vector<VersionRun> versions) {
  Sample sample;
  sample.versions = std::move(versions);
  sample.tokens.resize(static_cast<std::size_t>(num_tokens(sample.versions)));
  return {.ordinal = ordinal, .samples = {std::move(sample)}};
}

using Places = std::vector<std::size_t>;

TEST(StalestFirst, GroupsWithTheOldestTokenComeFirstAndThoseWithoutTokensLast) {
  const std::deque<Group> waiting{group_of(0, {}), group_of(1, {{5, 2}}),
                                  group_of(2, {{6, 1}, {3, 1}}), group_of(3, {{5, 1}, {6, 1}})};
  EXPECT_EQ(stalest_first(waiting, 2).taken, (Places{2, 1}));
  EXPECT_EQ(stalest_first(waiting, 2).left, (Places{0, 3}));
  EXPECT_EQ(stalest_first(waiting, 9).taken, (Places{2, 1, 3, 0}));
  EXPECT_TRUE(stalest_first(waiting, 9).left.empty());
}

TEST(StalestFirst, TokensThatNoWeightsDrewHaveNoAge) {
  const std::deque<Group> waiting{group_of(0, {{kNoVersion, 3}}), group_of(1, {{9, 1}})};
  EXPECT_EQ(stalest_first(waiting, 1).taken, Places{1});
}

TEST(StalestFirst, NothingIsTakenWhereNothingIsWanted) {
  const std::deque<Group> waiting{group_of(0, {{1, 1}})};
  EXPECT_TRUE(stalest_first(waiting, 0).taken.empty());
  EXPECT_EQ(stalest_first(waiting, 0).left, Places{0});
}

}  // namespace
}  // namespace slime::loop
