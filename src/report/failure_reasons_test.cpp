#include "report/failure_reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slime::report {
namespace {

using testing::ElementsAre;

Group group(int64_t ordinal) {
  Group left_out;
  left_out.ordinal = ordinal;
  return left_out;
}

TEST(FailureReasons, EqualOnesAreCountedWhateverTheirNumbers) {
  FailureReasons reasons;
  reasons.add("the prompt has 90 tokens");
  reasons.add("no answer");
  reasons.add("the prompt has 77 tokens");
  const std::vector<FailureReason> counted = reasons.by_frequency();
  ASSERT_EQ(counted.size(), 2U);
  EXPECT_EQ(counted[0].first, "the prompt has 90 tokens");
  EXPECT_EQ(counted[0].count, 2);
}

TEST(LeftOutPrompts, TheFirstIsToldInFullAndTheOthersAsACount) {
  std::vector<std::string> lines;
  LeftOutPrompts left_out([&](std::string_view line) { lines.emplace_back(line); });
  for (int64_t i = 0; i < 64; ++i) left_out.add(group(i), "reward: no answer after 10 attempts");
  EXPECT_THAT(lines, ElementsAre("prompt 0 is left out: reward: no answer after 10 attempts"));
  left_out.end_step();
  EXPECT_EQ(lines.back(),
            "63 more prompts are left out like it: reward: no answer after 10 attempts");
  left_out.end_step();
  EXPECT_EQ(lines.size(), 2U);
  left_out.add(group(70), "reward: no answer after 10 attempts");
  EXPECT_EQ(lines.back(), "prompt 70 is left out: reward: no answer after 10 attempts");
}

TEST(LeftOutPrompts, ManyKindsOfReasonsAreAFewLinesToo) {
  std::vector<std::string> lines;
  LeftOutPrompts left_out([&](std::string_view line) { lines.emplace_back(line); });
  for (char c = 'a'; c <= 'z'; ++c) left_out.add(group(c), std::string("label ") + c);
  left_out.end_step();
  EXPECT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines.back(), "21 more prompts are left out for other reasons");
}

TEST(LeftOutPrompts, AFilterThatKeepsNothingIsToldOf) {
  std::vector<std::string> lines;
  LeftOutPrompts left_out([&](std::string_view line) { lines.emplace_back(line); });
  for (int64_t i = 0; i < 63; ++i) left_out.add_filtered("zero_std");
  left_out.add_kept();  // a new row
  for (int64_t i = 0; i < 63; ++i) left_out.add_filtered("zero_std");
  EXPECT_THAT(lines, testing::IsEmpty());
  for (int64_t i = 63; i < 1'100; ++i) left_out.add_filtered("zero_std");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(
      lines[0],
      "64 groups in a row were filtered, the last as \"zero_std\"; the batch waits for groups "
      "that are kept");
  EXPECT_EQ(lines[1].substr(0, 4), "1024");
}

}  // namespace
}  // namespace slime::report
