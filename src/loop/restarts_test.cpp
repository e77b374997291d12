#include "loop/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::loop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

TEST(Restarts, ThreeWithoutProgressEndTheRunWithTheirHistory) {
  Losses losses(3);
  EXPECT_TRUE(losses.add("rank 0 died", -1));
  EXPECT_TRUE(losses.add("rank 1 died", -1));
  EXPECT_TRUE(losses.add("rank 2 died", -1));
  EXPECT_FALSE(losses.add("rank 3 died", -1));
  EXPECT_THAT(losses.history(), HasSubstr("started again 3 times"));
  EXPECT_THAT(losses.history(), HasSubstr("rank 0 died\nrank 1 died\nrank 2 died\nrank 3 died"));
}

TEST(Restarts, AStepThatWasNeverReachedBeforeIsProgressAndOneMadeAgainIsNone) {
  Losses losses(1);
  EXPECT_TRUE(losses.add("at step 8", 7));
  EXPECT_FALSE(Losses(losses).add("at step 8 again", 7));
  EXPECT_FALSE(Losses(losses).add("before that", 5));
  EXPECT_TRUE(losses.add("further on", 8));
  EXPECT_FALSE(losses.add("there again", 8));
  EXPECT_THAT(losses.history(), HasSubstr("further on\nthere again"));
  EXPECT_THAT(losses.history(), Not(HasSubstr("at step 8")));
}

TEST(Restarts, WithoutProgressEachWaitsLongerThanTheOneBefore) {
  Losses losses(100);
  EXPECT_TRUE(losses.add("", -1));
  EXPECT_EQ(losses.pause(), milliseconds(0));
  EXPECT_TRUE(losses.add("", -1));
  EXPECT_EQ(losses.pause(), milliseconds(250));
  EXPECT_TRUE(losses.add("", -1));
  EXPECT_EQ(losses.pause(), milliseconds(500));
  for (int i = 0; i < 20; ++i) losses.add("", -1);
  EXPECT_EQ(losses.pause(), milliseconds(16'000));
  EXPECT_TRUE(losses.add("", 0));
  EXPECT_EQ(losses.pause(), milliseconds(0));
}

}  // namespace
}  // namespace slime::loop
