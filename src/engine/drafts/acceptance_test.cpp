#include "engine/drafts/acceptance.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::engine {
namespace {

std::vector<Draft> made_drafts(int64_t count, double share = 1) {
  std::vector<Draft> drafts;
  double chance = 1;
  for (int64_t i = 0; i < count; ++i) drafts.push_back({.id = 7, .chance = chance *= share});
  return drafts;
}

/// One step, all of whose drafts are computed. Returns their calibrated chances.
std::vector<double> one_step(Acceptance& acceptance, std::vector<Draft> drafts, int64_t kept) {
  acceptance.calibrate(drafts);
  acceptance.told(std::ssize(drafts), std::min<int64_t>(kept, std::ssize(drafts)));
  std::vector<double> chances;
  for (const Draft& draft : drafts) chances.push_back(draft.chance);
  return chances;
}

TEST(Acceptance, BeginsWithThreeInTen) {
  Acceptance acceptance;
  auto drafts = made_drafts(2, 0.5);
  acceptance.calibrate(drafts);
  EXPECT_DOUBLE_EQ(drafts[0].chance, 0.3 * 0.5);
  EXPECT_DOUBLE_EQ(drafts[1].chance, 0.09 * 0.25);
}

TEST(Acceptance, OfADraftLayerBeginsWithMore) {
  Acceptance acceptance(Acceptance::kPriorOfLayer);
  auto drafts = made_drafts(2, 0.5);
  acceptance.calibrate(drafts);
  EXPECT_DOUBLE_EQ(drafts[0].chance, 0.7 * 0.5);
  acceptance.told(2, 0);
  EXPECT_DOUBLE_EQ(acceptance.ratio(), (2 * 0.7) / (0.5 + 2));
}

TEST(Acceptance, DraftsBehindTheFirstWrongOneDoNotCount) {
  Acceptance a, b;
  one_step(a, made_drafts(7), 1);  // right, wrong, and five that tell nothing
  one_step(b, made_drafts(2), 1);
  EXPECT_DOUBLE_EQ(a.ratio(), (1 + 0.6) / (2 + 2));
  EXPECT_DOUBLE_EQ(b.ratio(), a.ratio());
}

TEST(Acceptance, ARatioOfOneIsWhatTheIndexForetold) {
  Acceptance acceptance;
  for (int i = 0; i < 64; ++i) one_step(acceptance, made_drafts(1, 0.5), i % 2);
  EXPECT_NEAR(acceptance.ratio(), (16 + 0.6) / (16 + 2), 1e-12);
  for (int i = 0; i < 64; ++i) one_step(acceptance, made_drafts(1, 0.5), 1);
  EXPECT_EQ(acceptance.ratio(), 1) << "never more than foretold";
}

TEST(Acceptance, IsNextToNothingAfter32WrongDrafts) {
  Acceptance acceptance;
  for (int i = 0; i < 32; ++i) one_step(acceptance, made_drafts(3), 3);
  EXPECT_GT(acceptance.ratio(), 0.95);
  for (int i = 0; i < 32; ++i) one_step(acceptance, made_drafts(3), 0);
  EXPECT_LT(acceptance.ratio(), 0.02);
}

/// Steps that take the drafts whose chance is above 0.4; the index is always sure of seven, and `kept` of them are
/// right. Returns how many drafts were computed.
int64_t drafts_computed(Acceptance& acceptance, int64_t num_steps, int64_t kept) {
  int64_t computed = 0;
  for (int64_t i = 0; i < num_steps; ++i) {
    auto drafts = made_drafts(7);
    acceptance.calibrate(drafts);
    int64_t chosen = 0;
    while (chosen < std::ssize(drafts) && drafts[chosen].chance > 0.4) ++chosen;
    acceptance.told(chosen, std::min(kept, chosen));
    computed += chosen;
  }
  return computed;
}

TEST(Acceptance, TriesASingleDraftLessAndLessOften) {
  Acceptance acceptance;
  EXPECT_EQ(drafts_computed(acceptance, 8, 0), 0);
  EXPECT_EQ(drafts_computed(acceptance, 1, 0), 1);
  EXPECT_EQ(drafts_computed(acceptance, 16, 0), 0);
  EXPECT_EQ(drafts_computed(acceptance, 1, 0), 1);
  drafts_computed(acceptance, 1000, 0);
  EXPECT_LE(drafts_computed(acceptance, 1290, 0), 10);  // one in 129
  EXPECT_GE(drafts_computed(acceptance, 1290, 0), 9);
}

TEST(Acceptance, RecoversWhenTextsBecomePredictable) {
  Acceptance acceptance;
  for (int i = 0; i < 32; ++i) one_step(acceptance, made_drafts(1), 0);
  drafts_computed(acceptance, 2000, 0);
  ASSERT_LT(acceptance.ratio(), 0.05);
  drafts_computed(acceptance, 129 + 80, 7);
  EXPECT_GT(acceptance.ratio(), 0.9);
}

TEST(Acceptance, AStepThatTookNoneSaysNothing) {
  Acceptance acceptance;
  auto drafts = made_drafts(7);
  acceptance.calibrate(drafts);
  acceptance.told(0, 0);
  EXPECT_DOUBLE_EQ(acceptance.ratio(), 0.3);
  EXPECT_THROW(acceptance.told(8, 0), BugError);
}

}  // namespace
}  // namespace slime::engine
