#include "loop/follower_greeting.h"

#include <gtest/gtest.h>

namespace slime::loop {
namespace {

const cluster::RunIdentity kRun{.token = std::string(64, 'a'), .epoch = 2};

TEST(FollowerGreeting, SaysWhoFollows) {
  const std::string greeting = to_follower_greeting(3, kRun);
  EXPECT_EQ(rank_of_follower(greeting, kRun, 4), 3);
  EXPECT_FALSE(rank_of_follower(greeting, kRun, 3)) << "an engine of three ranks has none of it";
}

TEST(FollowerGreeting, OfSomebodyElseIsRefused) {
  const std::string of_run = cluster::to_greeting(kRun);
  for (const std::string& text :
       {std::string(), std::string("1"), std::string("1 "), of_run, "0 " + of_run, "-1 " + of_run,
        "1" + of_run, "1\n" + of_run, " 1 " + of_run, "4294967297 " + of_run,
        to_follower_greeting(1, {.token = std::string(64, 'b'), .epoch = 2}),
        to_follower_greeting(1, {.token = kRun.token, .epoch = 1})})
    EXPECT_FALSE(rank_of_follower(text, kRun, 4)) << text;
}

}  // namespace
}  // namespace slime::loop
