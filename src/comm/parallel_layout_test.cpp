#include "comm/parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/error.h"

namespace slime::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Members = std::vector<int>;

/// All groups of an axis, in the order of their first members.
std::vector<Members> groups_of(const ParallelLayout& layout, Axis axis) {
  std::set<Members> groups;
  for (int rank = 0; rank < layout.world_size(); ++rank)
    groups.insert(members_of(layout, axis, rank));
  return {groups.begin(), groups.end()};
}

TEST(ParallelLayout, TensorParallelRanksAreNeighboursThenContextThenDataThenStages) {
  const ParallelLayout layout{.dp = 2, .tp = 2, .pp = 2, .cp = 2};
  ASSERT_EQ(layout.world_size(), 16);
  const std::vector<std::array<int, 4>> tp_cp_dp_pp{
      {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 1, 0}, {1, 0, 1, 0},
      {0, 1, 1, 0}, {1, 1, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1},
      {0, 0, 1, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 1, 1}};
  for (int rank = 0; rank < 16; ++rank) {
    const Coordinates at = coordinates_of(layout, rank);
    EXPECT_EQ((std::array{at.tp, at.cp, at.dp, at.pp}), tp_cp_dp_pp[rank]) << rank;
  }
  EXPECT_THAT(groups_of(layout, Axis::kTp),
              ElementsAre(Members{0, 1}, Members{2, 3}, Members{4, 5}, Members{6, 7}, Members{8, 9},
                          Members{10, 11}, Members{12, 13}, Members{14, 15}));
  EXPECT_THAT(groups_of(layout, Axis::kCp),
              ElementsAre(Members{0, 2}, Members{1, 3}, Members{4, 6}, Members{5, 7},
                          Members{8, 10}, Members{9, 11}, Members{12, 14}, Members{13, 15}));
  EXPECT_THAT(groups_of(layout, Axis::kDp),
              ElementsAre(Members{0, 4}, Members{1, 5}, Members{2, 6}, Members{3, 7},
                          Members{8, 12}, Members{9, 13}, Members{10, 14}, Members{11, 15}));
  EXPECT_THAT(groups_of(layout, Axis::kPp),
              ElementsAre(Members{0, 8}, Members{1, 9}, Members{2, 10}, Members{3, 11},
                          Members{4, 12}, Members{5, 13}, Members{6, 14}, Members{7, 15}));
  EXPECT_THAT(groups_of(layout, Axis::kDpCp),
              ElementsAre(Members{0, 2, 4, 6}, Members{1, 3, 5, 7}, Members{8, 10, 12, 14},
                          Members{9, 11, 13, 15}));
}

TEST(ParallelLayout, ExpertsLieOverTheRanksOfAStage) {
  // Eight ranks in two stages; the four of a stage are two halves of an expert, for two experts.
  const ParallelLayout layout{.dp = 2, .tp = 2, .pp = 2, .ep = 2, .etp = 2};
  EXPECT_EQ(layout.edp(), 1);
  EXPECT_THAT(groups_of(layout, Axis::kEtp),
              ElementsAre(Members{0, 1}, Members{2, 3}, Members{4, 5}, Members{6, 7}));
  EXPECT_THAT(groups_of(layout, Axis::kEp),
              ElementsAre(Members{0, 2}, Members{1, 3}, Members{4, 6}, Members{5, 7}));
  EXPECT_EQ(groups_of(layout, Axis::kEdp).size(), 8u);
  EXPECT_EQ(coordinates_of(layout, 6),
            (Coordinates{.dp = 1, .tp = 0, .pp = 1, .cp = 0, .ep = 1, .etp = 0, .edp = 0}));
}

TEST(ParallelLayout, ExpertsMaySpreadOverTensorAndDataParallelRanks) {
  const ParallelLayout layout{.dp = 4, .tp = 2, .ep = 4};
  EXPECT_THAT(groups_of(layout, Axis::kEp), ElementsAre(Members{0, 1, 2, 3}, Members{4, 5, 6, 7}));
  EXPECT_THAT(groups_of(layout, Axis::kEdp),
              ElementsAre(Members{0, 4}, Members{1, 5}, Members{2, 6}, Members{3, 7}));
  EXPECT_THAT(groups_of(layout, Axis::kDp), ElementsAre(Members{0, 2, 4, 6}, Members{1, 3, 5, 7}));
}

TEST(ParallelLayout, EveryAxisDividesTheWorldIntoGroupsOfItsSize) {
  for (const ParallelLayout& layout :
       {ParallelLayout{.dp = 3, .tp = 2, .pp = 2, .cp = 1, .ep = 3, .etp = 1},
        ParallelLayout{.dp = 1, .tp = 4, .pp = 1, .cp = 2, .ep = 2, .etp = 4},
        ParallelLayout{.dp = 2, .tp = 1, .pp = 4, .cp = 2, .ep = 4, .etp = 1}}) {
    const std::vector<std::pair<Axis, int>> sizes{{Axis::kWorld, layout.world_size()},
                                                  {Axis::kModel, layout.tp * layout.cp * layout.pp},
                                                  {Axis::kTp, layout.tp},
                                                  {Axis::kCp, layout.cp},
                                                  {Axis::kDp, layout.dp},
                                                  {Axis::kPp, layout.pp},
                                                  {Axis::kDpCp, layout.dp * layout.cp},
                                                  {Axis::kEtp, layout.etp},
                                                  {Axis::kEp, layout.ep},
                                                  {Axis::kEdp, layout.edp()}};
    for (const auto& [axis, size] : sizes) {
      Members all;
      for (const Members& group : groups_of(layout, axis)) {
        EXPECT_EQ(static_cast<int>(group.size()), size) << name_of(axis);
        all.insert(all.end(), group.begin(), group.end());
      }
      std::ranges::sort(all);
      Members expected(layout.world_size());
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected) << name_of(axis);
    }
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      const Coordinates at = coordinates_of(layout, rank);
      EXPECT_EQ(at.tp + layout.tp * (at.cp + layout.cp * (at.dp + layout.dp * at.pp)), rank);
      EXPECT_EQ(at.etp + layout.etp * (at.ep + layout.ep * (at.edp + layout.edp() * at.pp)), rank);
    }
  }
}

TEST(ParallelLayout, RefusesExpertsThatDoNotDivideAStage) {
  const auto problem_of = [](const ParallelLayout& layout) -> std::string {
    try {
      validate(layout);
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(problem_of({.dp = 2, .tp = 2, .ep = 4}), "none");
  EXPECT_THAT(problem_of({.dp = 2, .tp = 2, .ep = 3}), HasSubstr("does not divide the 4 ranks"));
  EXPECT_THAT(problem_of({.dp = 2, .pp = 2, .ep = 4}), HasSubstr("does not divide the 2 ranks"));
  EXPECT_THAT(problem_of({.cp = 0}), HasSubstr("context parallelism of 0"));
}

}  // namespace
}  // namespace slime::comm
