#include "config/secrets.h"

#include <gtest/gtest.h>

#include "config/parse_flags.h"

namespace slime::config {
namespace {

using Words = std::vector<std::string>;

TEST(Secrets, OfPlugInsAreKnownByTheirNames) {
  EXPECT_EQ(without_secrets(json::object{{"judge_api_key", "k"}, {"hf_token", "t"}, {"turns", 4}}),
            (json::object{{"judge_api_key", "***"}, {"hf_token", "***"}, {"turns", 4}}));
}

TEST(Secrets, FieldsOfTheDataAreNone) {
  EXPECT_FALSE(is_secret_flag("--input-key"));
  EXPECT_FALSE(is_secret_flag("--reward-key"));
  EXPECT_TRUE(is_secret_flag("wandb_key"));
}

TEST(Secrets, AreNotAmongTheFlagsOfTheRunFile) {
  const ParsedFlags parsed =
      parse_flags(Words{"--wandb-key", "hunter2", "--wandb-host", "https://me:pw@w.org"});
  EXPECT_EQ(parsed.config.wandb_key, "hunter2");
  EXPECT_EQ(changed_flags(parsed.config),
            (json::object{{"--wandb-key", "***"}, {"--wandb-host", "https://***@w.org"}}));
}

TEST(Secrets, AreNotInMessagesAboutThem) {
  const ParsedFlags parsed = parse_flags(Words{"--wandb-key", "hunter2", "hunter3"});
  ASSERT_EQ(parsed.problems.size(), 1U);
  EXPECT_EQ(parsed.problems[0], "--wandb-key takes one value, got ***");
}

TEST(Secrets, AreOverwrittenInTheProcesssOwnArguments) {
  std::string flag = "--wandb-key", value = "hunter2", joined = "--wandb-key=hunter2", lr = "--lr";
  std::string url = "http://me:pw@x", plain = "http://x";
  std::vector<char*> words{flag.data(), value.data(), joined.data(),
                           lr.data(),   url.data(),   plain.data()};
  hide_secrets(words);
  EXPECT_EQ(flag, "--wandb-key");
  EXPECT_EQ(value, "*******");
  EXPECT_EQ(joined, "--wandb-key=*******");
  EXPECT_EQ(lr, "--lr");
  EXPECT_EQ(url, "http**********");
  EXPECT_EQ(plain, "http://x");
}

}  // namespace
}  // namespace slime::config
