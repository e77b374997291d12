#include "engine/drafts/draft_expectation.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

/// Steps that run ahead until one is planned with all tokens.
int64_t steps_ahead(DraftExpectation& expectation) {
  int64_t steps = 0;
  for (; !expectation.is_due(); ++steps) expectation.ran_ahead();
  return steps;
}

TEST(DraftExpectation, WaitsTwiceAsLongAfterEachStepWithoutDrafts) {
  DraftExpectation expectation;
  EXPECT_TRUE(expectation.is_due());
  for (const int64_t wait : {8, 16, 32, 32}) {
    expectation.planned(false);
    EXPECT_EQ(steps_ahead(expectation), wait);
  }
  expectation.planned(true);
  EXPECT_TRUE(expectation.is_due());
}

TEST(DraftExpectation, GoesOnOverThreeStepsWithoutDraftsButNotOverFour) {
  DraftExpectation expectation;
  for (int round = 0; round < 5; ++round) {
    expectation.planned(true);
    for (int i = 0; i < 3; ++i) {
      expectation.planned(false);
      EXPECT_TRUE(expectation.is_due());
    }
  }
  expectation.planned(false);
  EXPECT_EQ(steps_ahead(expectation), 8);
}

}  // namespace
}  // namespace slime::engine
