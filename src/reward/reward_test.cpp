#include "reward/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::reward {
namespace {

using testing::HasSubstr;

Sample answered(std::string response, json::value label) {
  Sample sample;
  sample.response = std::move(response);
  sample.label = std::move(label);
  return sample;
}

TEST(Reward, ListsTheKnownTypesForAnUnknownOne) {
  try {
    make_reward("mth");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "--rm-type mth: unknown; there are dapo, deepscaler, f1, gpqa, ifbench, math, random, "
            "remote_rm"));
  }
}

TEST(Reward, TheSamplesOwnTypeWins) {
  Sample sample = answered("\\boxed{4}", "4");
  EXPECT_EQ(make_reward("math")(sample).value(), json::value(1));
  sample.metadata["rm_type"] = " f1 ";
  EXPECT_EQ(make_reward("math")(sample).value(), json::value(0.0));
  sample.metadata["rm_type"] = "boxed_f1";
  EXPECT_EQ(make_reward("math")(sample).value(), json::value(1.0));
  EXPECT_EQ(make_reward("")(sample).value(), json::value(1.0));
}

TEST(Reward, WithoutATypeOrWithAnUnknownOneTheSampleFails) {
  Sample sample = answered("4", "4");
  EXPECT_THAT(make_reward("")(sample).error().message, HasSubstr("no reward type is given"));
  sample.metadata["rm_type"] = "mth";
  EXPECT_THAT(make_reward("math")(sample).error().message, HasSubstr("--rm-type mth: unknown"));
}

TEST(Reward, BoxedGivesTheRuleWhatTheBoxHolds) {
  EXPECT_EQ(make_reward("boxed_f1")(answered("so \\boxed{new york}", "New York")).value(),
            json::value(1.0));
  EXPECT_EQ(make_reward("boxed_f1")(answered("no box: New York", "New York")).value(),
            json::value(0.0));
  EXPECT_EQ(make_reward("boxed_math")(answered("\\boxed{4}", "4")).value(), json::value(0));
}

TEST(Reward, ALabelThatTheRuleCannotUseIsAFailureAndNoZero) {
  EXPECT_THAT(make_reward("dapo")(answered("Answer: 4", "four")).error().message,
              HasSubstr("\"four\" is not a number"));
  EXPECT_FALSE(make_reward("dapo")(answered("Answer: 4", nullptr)));
  EXPECT_FALSE(make_reward("deepscaler")(answered("</think>\\boxed{4}", nullptr)));
  EXPECT_FALSE(make_reward("f1")(answered("four", json::object())));
}

TEST(Reward, RandomIsDecidedBySeedAndSampleAlone) {
  const RewardFn reward = make_reward("random", {.seed = 7});
  const RewardFn other = make_reward("random", {.seed = 8});
  int ones = 0;
  int differences = 0;
  for (int64_t ordinal = 0; ordinal < 1000; ++ordinal) {
    Sample sample;
    sample.ordinal = ordinal;
    const json::value score = reward(sample).value();
    EXPECT_EQ(score, make_reward("random", {.seed = 7})(sample).value());
    ones += static_cast<int>(score.to_number<int64_t>());
    differences += score != other(sample).value();
  }
  EXPECT_NEAR(ones, 500, 80);  // five standard deviations
  EXPECT_NEAR(differences, 500, 80);
}

/// Steps are bounded by the length: none of these may take long, use much memory or overflow the
/// stack. Each takes a few milliseconds; the test has no clock, a quadratic rule would take
/// minutes.
TEST(Reward, HostileResponsesEnd) {
  constexpr std::size_t kSize = 20'000;
  const auto repeated = [](std::string_view part) {
    std::string text;
    while (text.size() < kSize) text += part;
    return text;
  };
  std::vector<std::string> bodies;
  for (const std::string_view part : {"{",
                                      "}",
                                      "{}",
                                      "\\frac",
                                      "\\frac{",
                                      "\\frac{1}{",
                                      "\\sqrt",
                                      "\\sqrt{",
                                      "\\sqrt[",
                                      "\\text{",
                                      "\\text{ ",
                                      "\\begin{array}{",
                                      "\\begin{pmatrix}",
                                      "\\\\",
                                      "^9",
                                      "9^",
                                      "(9^9)^",
                                      "**9",
                                      "((",
                                      "(",
                                      "))",
                                      "1/",
                                      "1,",
                                      "1,000,",
                                      "- ",
                                      "--",
                                      "9",
                                      "9!",
                                      "!",
                                      "x",
                                      "x+",
                                      "1 1 ",
                                      "degrees",
                                      "meter^",
                                      "^ \\circ",
                                      "^ ",
                                      ",\\! ",
                                      "$",
                                      "\\$",
                                      "answer",
                                      "answer:",
                                      "Answer : \n",
                                      "is ",
                                      "a is the ",
                                      "=",
                                      ".",
                                      "\\boxed{",
                                      "\\bf{",
                                      "\\mathbf{",
                                      "\xff",
                                      "\xe2\x80",
                                      "\xf0\x9f\x98\x80",
                                      "\\hat{",
                                      "yes ",
                                      "the ",
                                      "<think>",
                                      "</think>",
                                      "###Response"}) {
    bodies.push_back(repeated(part));
  }
  std::string tower = "9";
  for (int i = 0; i < 90; ++i) tower = "(" + tower + ")^9";
  bodies.push_back(tower + "/7");
  std::string sum = "1/3";
  for (int i = 2; i < 600; ++i) sum += "+1/" + std::to_string(2 * i + 1);
  bodies.push_back(sum);
  bodies.push_back("9^-9999999999");
  bodies.push_back("400!-399!");
  bodies.push_back("1e308*1e308*x");
  for (const std::string& body : bodies) {
    for (const char* type : {"math", "deepscaler", "dapo", "f1", "gpqa", "boxed_f1"}) {
      const std::string shown = body.substr(0, 12);
      SCOPED_TRACE(std::string(type) + " " + shown);
      const RewardFn reward = make_reward(type);
      for (const std::string& response :
           {"</think>\\boxed{" + body + "}", body, "Answer: " + body, "</think>\\boxed{" + body}) {
        const Expected<json::value> score = reward(answered(response, "22.5"));
        ASSERT_TRUE(score);
        const double number = score->is_object() ? score->get_object().at("score").get_double()
                                                 : score->to_number<double>();
        EXPECT_LE(number, 0.0);
      }
    }
  }
}

}  // namespace
}  // namespace slime::reward
