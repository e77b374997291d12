#include "engine/drafts/draft_choice.h"

#include <gtest/gtest.h>

#include "core/splitmix64.h"

namespace slime::engine {
namespace {

std::vector<Draft> with_chances(const std::vector<double>& chances) {
  std::vector<Draft> drafts;
  for (const double chance : chances) drafts.push_back({.id = 1, .chance = chance});
  return drafts;
}

/// Seconds of a step by its rows: seconds[i] of i + 1, each the only one of its bucket.
StepCosts costs_of(const std::vector<double>& seconds) {
  StepCosts costs;
  for (int64_t i = 0; i < std::ssize(seconds); ++i)
    for (int times = 0; times < 2; ++times) costs.observe(i + 1, seconds[i]);
  return costs;
}

using DraftNumbers = std::vector<int64_t>;
using Sequences = std::vector<std::vector<Draft>>;

TEST(DraftChoice, TakesAllWhereRowsCostNothing) {
  const Sequences drafts = {with_chances({0.2, 0.1}), with_chances({}), with_chances({0.9})};
  EXPECT_EQ(choose_drafts(drafts, 3, 100, StepCosts()), (DraftNumbers{2, 0, 1}));
}

TEST(DraftChoice, TakesNoneWhereARowCostsAsMuchAsItsToken) {
  const Sequences drafts = {with_chances({0.9, 0.8})};
  EXPECT_EQ(choose_drafts(drafts, 1, 100, costs_of({1, 2, 3})), (DraftNumbers{0}));
}

TEST(DraftChoice, TakesTheLikeliestAsLongAsTheyPay) {
  // Tokens a second: 2 / 2 without, 2.9 / 2.4 with the first, 3.2 / 2.8 with one more.
  const Sequences drafts = {with_chances({0.3, 0.1}), with_chances({0.9, 0.2})};
  EXPECT_EQ(choose_drafts(drafts, 2, 4, costs_of({1.6, 2, 2.4, 2.8})), (DraftNumbers{0, 1}));
}

TEST(DraftChoice, LooksBeyondAStepOfTheCosts) {
  // The second row costs 0.6 and earns 0.5, the third and fourth cost nothing more and earn 0.9.
  const Sequences drafts = {with_chances({0.5, 0.5, 0.4})};
  EXPECT_EQ(choose_drafts(drafts, 1, 100, costs_of({1, 1.6, 1.6, 1.6})), (DraftNumbers{3}));
  EXPECT_EQ(choose_drafts(drafts, 1, 2, costs_of({1, 1.6, 1.6, 1.6})), (DraftNumbers{0}));
}

TEST(DraftChoice, OfEqualChancesTheFirstSequenceHasTheRows) {
  const Sequences drafts = {with_chances({0.5, 0.5}), with_chances({0.5, 0.5})};
  EXPECT_EQ(choose_drafts(drafts, 2, 3, StepCosts()), (DraftNumbers{1, 0}));
  EXPECT_EQ(choose_drafts(drafts, 2, 5, StepCosts()), (DraftNumbers{2, 1}));
  EXPECT_EQ(choose_drafts(drafts, 2, 1, StepCosts()), (DraftNumbers{0, 0}));
}

TEST(DraftChoice, NeverTakesADraftWithoutThoseBeforeIt) {
  const Sequences drafts = {with_chances({0.1, 0.9}), with_chances({0.5})};
  EXPECT_EQ(choose_drafts(drafts, 2, 3, StepCosts()), (DraftNumbers{0, 1}));
  EXPECT_EQ(choose_drafts({{with_chances({0, 0.9})}}, 1, 9, StepCosts()), (DraftNumbers{0}));
}

/// Of every number of drafts for each of three sequences, the most tokens a second.
TEST(DraftChoice, IsTheBestOfAllChoicesWhereRowsCostAlike) {
  uint64_t draw = 1;
  const auto drawn = [&draw] { return static_cast<double>(splitmix64(++draw) % 1000) / 1000; };
  for (int round = 0; round < 50; ++round) {
    std::vector<double> seconds = {1};
    for (int i = 0; i < 3; ++i) seconds.push_back(seconds.back() + drawn() * drawn() * 0.5);
    const StepCosts costs = costs_of(seconds);
    Sequences drafts;
    for (int i = 0; i < 3; ++i) {
      const double chance = drawn();
      drafts.push_back(with_chances({chance, chance * drawn()}));
    }
    const auto rate = [&](const DraftNumbers& counts) {
      double tokens = 3;
      int64_t rows = 3;
      for (int i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < counts[i]; ++j) tokens += drafts[i][j].chance;
        rows += counts[i];
      }
      return tokens / costs.seconds(rows);
    };
    double best = 0;
    for (int64_t code = 0; code < 27; ++code)
      best = std::max(best, rate({code % 3, code / 3 % 3, code / 9}));
    EXPECT_DOUBLE_EQ(rate(choose_drafts(drafts, 3, 100, costs)), best) << round;
  }
}

}  // namespace
}  // namespace slime::engine
