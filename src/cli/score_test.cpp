#include "cli/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::cli {
namespace {

using testing::HasSubstr;

json::object scored(const char* type, const char* line, const std::string& key = "") {
  return score_line(parse_json(line, "line").as_object(), 0, reward::make_reward(type), key,
                    "in, line 1");
}

TEST(Score, GivesTheNumberOfEachResponse) {
  EXPECT_EQ(scored("math", R"({"response": "\\boxed{4}", "label": "4"})"),
            (json::object{{"score", 1}}));
  EXPECT_EQ(scored("math", R"({"response": null, "label": "4", "metadata": null})"),
            (json::object{{"score", 0}}));
  EXPECT_EQ(scored("", R"({"response": "4", "label": "4", "metadata": {"rm_type": "f1"}})"),
            (json::object{{"score", 1}}));
}

TEST(Score, ARecordCountsByItsScoreOrItsKey) {
  const char* line = R"({"response": "Answer: 5", "label": "4"})";
  EXPECT_EQ(scored("dapo", line).at("score"), json::value(-1));
  EXPECT_EQ(scored("dapo", line).at("reward").at("pred"), json::value("5"));
  EXPECT_EQ(scored("dapo", line, "acc").at("score"), json::value(0));
}

TEST(Score, SaysWhyThereIsNone) {
  const json::object unusable = scored("dapo", R"({"response": "Answer: 5", "label": "five"})");
  EXPECT_TRUE(unusable.at("score").is_null());
  EXPECT_THAT(std::string(unusable.at("reason").as_string()), HasSubstr("is not a number"));
  const json::object keyless = scored("dapo", R"({"response": "", "label": "4"})", "points");
  EXPECT_THAT(std::string(keyless.at("reason").as_string()), HasSubstr("has no key \"points\""));
  EXPECT_THAT(std::string(scored("", R"({"response": ""})").at("reason").as_string()),
              HasSubstr("no reward type is given"));
}

TEST(Score, ALineOfAnotherFormIsAConfigurationErrorThatNamesIt) {
  for (const char* line :
       {R"({"label": "4"})", R"({"response": 4})", R"({"response": "", "metadata": []})"}) {
    try {
      scored("math", line);
      ADD_FAILURE() << line;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("in, line 1: \""));
    }
  }
}

}  // namespace
}  // namespace slime::cli
