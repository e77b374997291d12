#include "cluster/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace slime::cluster {
namespace {

TEST(RunIdentity, TokensHave32RandomBytes) {
  const std::string one = make_run_token(), other = make_run_token();
  EXPECT_THAT(one, testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(one, other);
}

TEST(RunIdentity, TravelsInTheEnvironmentAndIsTakenOutOfIt) {
  const RunIdentity identity{.token = make_run_token(), .epoch = 3};
  for (const std::string& setting : to_environment(identity)) {
    const std::size_t at = setting.find('=');
    ::setenv(setting.substr(0, at).c_str(), setting.substr(at + 1).c_str(), 1);
  }
  EXPECT_EQ(take_identity_from_environment(), identity);
  EXPECT_EQ(std::getenv(kTokenVariable), nullptr);
  EXPECT_EQ(take_identity_from_environment(), RunIdentity{});
  ::setenv(kEpochVariable, "x", 1);
  EXPECT_THROW(take_identity_from_environment(), ConfigError);
  ::unsetenv(kEpochVariable);
}

TEST(RunIdentity, TheTokenIsOverwrittenWhereTheSystemShowsIt) {
  ::setenv(kTokenVariable, "a secret of the run", 1);
  const char* shown = std::getenv(kTokenVariable);
  EXPECT_EQ(take_identity_from_environment().token, "a secret of the run");
  EXPECT_EQ(std::string_view(shown, 19), std::string(19, '\0'));
}

TEST(RunIdentity, GreetingsOfOlderEpochsAreRefusedWithTheReason) {
  const RunIdentity own{.token = make_run_token(), .epoch = 2};
  EXPECT_EQ(to_greeting(own), "2") << "the token is sent to nobody";
  EXPECT_EQ(why_refused(own, to_greeting(own)), "");
  EXPECT_EQ(why_refused(own, to_greeting({own.token, 3})), "");
  EXPECT_EQ(why_refused(own, to_greeting({own.token, 1})),
            "it is of epoch 1, and the run is in epoch 2");
  for (const char* none : {"", "x ", "-1", "2 a"})
    EXPECT_EQ(why_refused(own, none), "it does not begin with its epoch") << none;
}

}  // namespace
}  // namespace slime::cluster
