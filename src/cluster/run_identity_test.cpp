#include "cluster/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(RunIdentity, OlderEpochsAndOtherTokensAreRefusedWithTheReason) {
  const RunIdentity own{.token = make_run_token(), .epoch = 2};
  EXPECT_EQ(why_refused(own, to_greeting(own)), "");
  EXPECT_EQ(why_refused(own, to_greeting({own.token, 3})), "");
  EXPECT_EQ(why_refused(own, to_greeting({own.token, 1})),
            "it is of epoch 1, and the run is in epoch 2");
  EXPECT_EQ(why_refused(own, to_greeting({make_run_token(), 2})),
            "it does not have the token of this run");
  for (const char* none : {"", "2", "x ", "-1 a"})
    EXPECT_EQ(why_refused(own, none), "it does not begin with the run's token") << none;
  EXPECT_EQ(why_refused(own, "2 short"), "it does not have the token of this run");
}

}  // namespace
}  // namespace slime::cluster
