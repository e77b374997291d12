#include "report/sample_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::report {
namespace {

using testing::HasSubstr;
using testing::Not;

Sample answered(int64_t ordinal, const char* response, json::value reward) {
  Sample made;
  made.ordinal = ordinal;
  made.prompt = "Say something about a cat.\nBe short.";
  made.prompt_length = 2;
  made.tokens = {90'001, 90'002, 90'003};
  made.log_probs = {-0.125F};
  made.label = "cat";
  made.response = response;
  made.reward = std::move(reward);
  made.status = Status::kCompleted;
  return made;
}

TEST(SampleText, HasPromptResponsesAndRewardsAndNoTokens) {
  Group group{.ordinal = 12, .samples = {answered(24, "A cat.", 1), answered(25, "A dog.", 0)}};
  EXPECT_EQ(plain_text(group, ""),
            "prompt 12: 2 samples, mean reward 0.5, label \"cat\"\n"
            "    Say something about a cat.\n"
            "    Be short.\n"
            "\n"
            "sample 24: reward 1, completed, 1 tokens\n"
            "    A cat.\n"
            "\n"
            "sample 25: reward 0, completed, 1 tokens\n"
            "    A dog.\n"
            "\n");
}

TEST(SampleText, ARewardRecordCountsByItsKeyAndIsShown) {
  const Group group{.ordinal = 1,
                    .samples = {answered(1, "x", json::object{{"score", 1}, {"acc", 0.25}})}};
  EXPECT_THAT(plain_text(group, ""), HasSubstr("sample 1: reward 1 of {"));
  EXPECT_THAT(plain_text(group, "acc"), HasSubstr("mean reward 0.25,"));
}

TEST(SampleText, AFailureHasItsReasonAndNoReward) {
  Group group{.ordinal = 1, .samples = {answered(1, "x", nullptr)}};
  group.samples[0].status = Status::kFailed;
  group.samples[0].failure = "reward: ValueError (own.py:3)";
  const std::string text = plain_text(group, "");
  EXPECT_THAT(text, HasSubstr("sample 1: no reward, failed"));
  EXPECT_THAT(text, HasSubstr("    why: reward: ValueError (own.py:3)\n"));
  EXPECT_THAT(text, Not(HasSubstr("mean reward")));
}

TEST(SampleText, AResponseCannotSpeakToTheTerminal) {
  const Group group{.ordinal = 1, .samples = {answered(1, "\x1b[2J\ta\r\xc3\xa9", 1)}};
  EXPECT_THAT(plain_text(group, ""), HasSubstr("    \\x1b[2J\ta\\x0d\xc3\xa9\n"));
}

TEST(SampleText, NoFieldOfASampleSpeaksToTheTerminal) {
  const std::string order =
      "\xc2\x9b"
      "2J";
  Group group{.ordinal = 1, .samples = {answered(1, order.c_str(), json::object{{"why", order}})}};
  group.samples[0].prompt = group.samples[0].failure = order;
  group.samples[0].label = order;
  const std::string text = plain_text(group, "");
  EXPECT_THAT(text, Not(HasSubstr("\xc2")));
  EXPECT_THAT(text, HasSubstr("label \"\\x9b2J\""));
  EXPECT_THAT(text, HasSubstr("    \\x9b2J\n"));
}

}  // namespace
}  // namespace slime::report
