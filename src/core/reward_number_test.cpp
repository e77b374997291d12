#include "core/reward_number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace slime {
namespace {

using testing::HasSubstr;

TEST(RewardNumber, IsTheRewardOrAFieldOfIt) {
  EXPECT_EQ(reward_number(0.5, "").value(), 0.5);
  EXPECT_EQ(reward_number(true, "").value(), 1.0);
  EXPECT_EQ(reward_number(json::object{{"score", -1}}, "score").value(), -1.0);
}

TEST(RewardNumber, AnythingElseIsAFailureThatNamesTheValue) {
  const auto why = [](const json::value& reward, const char* key = "") {
    const Expected<double> number = reward_number(reward, key);
    return number ? "a number" : number.error().message;
  };
  EXPECT_THAT(why(nullptr), HasSubstr("the reward null is not a number"));
  EXPECT_THAT(why("x"), HasSubstr("the reward \"x\" is not a number"));
  EXPECT_THAT(why(INFINITY), HasSubstr("is not finite"));
  EXPECT_THAT(why(json::object{{"acc", 1}}), HasSubstr("--reward-key names a field"));
  EXPECT_THAT(why(json::object{{"acc", 1}}, "score"),
              HasSubstr("{\"acc\":1} has no key \"score\""));
  EXPECT_THAT(why(7, "score"), HasSubstr("the reward 7 has no key"));
  EXPECT_LT(why(json::value(json::string(100'000, 'x'))).size(), 300U);
}

}  // namespace
}  // namespace slime
