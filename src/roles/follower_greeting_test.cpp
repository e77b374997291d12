#include "roles/follower_greeting.h"

#include <gtest/gtest.h>

namespace slime::roles {
namespace {

TEST(FollowerGreeting, SaysWhoFollows) {
  const std::string greeting = to_follower_greeting(3, 2);
  EXPECT_EQ(greeting, "3 2");
  EXPECT_EQ(rank_of_follower(greeting, 2, 4), 3);
  EXPECT_FALSE(rank_of_follower(greeting, 2, 3)) << "an engine of three ranks has none of it";
}

TEST(FollowerGreeting, OfAnotherFormOrEpochIsRefused) {
  for (const char* text : {"", "1", "1 ", "2", "0 2", "-1 2", "12", "1\n2", " 1 2", "4294967297 2",
                           "1 2 ", "1 02", "01 2", "1 1", "1 3"})
    EXPECT_FALSE(rank_of_follower(text, 2, 4)) << text;
}

}  // namespace
}  // namespace slime::roles
