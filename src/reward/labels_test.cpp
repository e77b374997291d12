// What labels of published data sets look like, and what a type has to do with them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reward/reward.h"
#include "text/unicode/python_text.h"

namespace slime::reward {
namespace {

using testing::HasSubstr;

Sample labelled(std::string response, json::value label) {
  Sample sample;
  sample.response = std::move(response);
  sample.label = std::move(label);
  return sample;
}

double number_by(const std::string& type, const std::string& response, const json::value& label,
                 Grading grading) {
  const json::value score =
      make_reward(type, {.grading = grading})(labelled(response, label)).value();
  return (score.is_object() ? score.get_object().at("score") : score).to_number<double>();
}

TEST(RewardLabels, BoxedScoresTheBoxAlsoOfRulesThatLookForOne) {
  for (const Grading grading : {Grading::kStrict, Grading::kOriginal}) {
    const auto score = [grading](const char* type, const char* response, const char* label) {
      return number_by(type, response, label, grading);
    };
    for (const char* type : {"boxed_math", "boxed_deepscaler", "boxed_gsm8k", "boxed_f1"}) {
      EXPECT_EQ(score(type, "so \\boxed{5}", "5"), 1) << type;
      EXPECT_EQ(score(type, "so \\boxed{6}", "5"), 0) << type;
      EXPECT_EQ(score(type, "so 5", "5"), 0) << type;
    }
    for (const char* type : {"boxed_dapo", "boxed_dapo_box"}) {
      EXPECT_EQ(score(type, "Answer: 6, no, \\boxed{5}", "5"), 1) << type;
      EXPECT_EQ(score(type, "Answer: 5, no, \\boxed{6}", "5"), -1) << type;
      EXPECT_EQ(score(type, "Answer: 5", "5"), -1) << type;
    }
    EXPECT_EQ(score("boxed_gpqa", "\\boxed{B}", "B"), 1);
  }
}

TEST(RewardLabels, OfGpqaMayBeAPlaceAsTextWhereNoChoiceHasThatText) {
  const auto score = [](const char* response, json::value label, json::object metadata = {}) {
    Sample sample = labelled(response, std::move(label));
    sample.metadata = std::move(metadata);
    return make_reward("gpqa")(sample).value().to_number<double>();
  };
  for (const json::value& label : {json::value(1), json::value("1"), json::value(" 1 ")}) {
    EXPECT_EQ(score("The answer is B", label), 1);
    EXPECT_EQ(score("The answer is A", label), 0);
    EXPECT_EQ(score("It is 1", label), 0);
  }
  const json::object numbers{{"choices", {"7", "1", "12", "0"}}};
  EXPECT_EQ(score("The answer is B", "1", numbers), 1);  // the choice of that text
  EXPECT_EQ(score("The answer is D", "0", numbers), 1);
  EXPECT_EQ(score("It is 12", "12", numbers), 1);
  const json::object towns{{"choices", {"Rome", "Oslo", "Bonn", "Bern"}}};
  EXPECT_EQ(score("The answer is Oslo", "1", towns), 1);
}

TEST(RewardLabels, EveryTypeCanGiveMoreThanItsMinimum) {
  // What label_problem asks of each row: a response that gives the label as its answer scores.
  const std::string types = known_types();
  for (const std::string_view name : text::python::split(types, ", ")) {
    for (const char* prefix : {"", "boxed_"}) {
      const std::string type = prefix + std::string(name);
      const json::object metadata{{"instruction_id_list", json::array{"punctuation:no_comma"}}};
      EXPECT_EQ(label_problem("7", metadata, type, {.url = "http://judge"}), std::nullopt) << type;
    }
  }
}

TEST(RewardLabels, LabelsMayBeAsPublishedDataSetsHaveThem) {
  const auto score = [](const char* type, const char* response, const json::value& label) {
    const Expected<json::value> reward = make_reward(type)(labelled(response, label));
    if (!reward) return reward.error().message;
    const json::object* record = reward->if_object();
    return json_text(
        json::value((record == nullptr ? *reward : record->at("score")).to_number<int64_t>()));
  };
  const char* solution = "She sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72";
  for (const char* type : {"math", "gsm8k", "dapo"}) {
    const char* right = std::string_view(type) == "dapo" ? "Answer: 72" : "\\boxed{72}";
    const char* wrong = std::string_view(type) == "dapo" ? "Answer: 24" : "\\boxed{24}";
    for (const json::value& label :
         {json::value(solution), json::value("72"), json::value(72), json::value(json::array{"72"}),
          json::value("[\"72\"]"), json::value("['71' '72']"), json::value(json::array{1, 72}),
          json::value("array(['72'], dtype=object)")}) {
      EXPECT_EQ(label_problem(label, {}, type, {}), std::nullopt) << json_text(label);
      EXPECT_EQ(score(type, right, label), "1") << type << json_text(label);
      EXPECT_EQ(score(type, wrong, label), std::string_view(type) == "dapo" ? "-1" : "0")
          << type << json_text(label);
    }
  }
  EXPECT_EQ(score("f1", "paris", json::array{"London", "Paris"}), "1");
  EXPECT_EQ(score("math", "\\boxed{\\frac{1}{2}}", "[\"\\\\frac{1}{2}\"]"), "1");
  EXPECT_EQ(score("math", "\\boxed{[0,1]}", "[0,1]"), "1");
  EXPECT_EQ(score("math", "\\boxed{0}", "[0,1]"), "0");
}

TEST(RewardLabels, WholeNumbersOfDapoKeepAllTheirDigits) {
  const auto score = [](const char* response, const json::value& label) {
    return number_by("dapo", response, label, Grading::kStrict);
  };
  const json::value label = parse_json("123456789012345678901234567890", "label");
  EXPECT_EQ(score("Answer: 123456789012345678901234567890", label), 1);
  EXPECT_EQ(score("Answer: 123456789012345678901234567891", label), -1);
  EXPECT_EQ(score("Answer: 9007199254740993", "9007199254740993"), 1);  // 2^53 + 1
  EXPECT_EQ(score("Answer: 9007199254740992", "9007199254740993"), -1);
  EXPECT_EQ(score("Answer: -7", "-007"), 1);
  EXPECT_EQ(score("Answer: 7", "+7.0"), 1);
  EXPECT_EQ(score("Answer: 0", "-0"), 1);
}

TEST(RewardLabels, ANumberBeyondDoublesIsRefused) {
  EXPECT_EQ(label_problem(parse_json("1e400", "label"), {}, "math", {}),
            "math: the label is a number that no double holds; write it as a string");
}

TEST(RewardLabels, ALabelThatTheRuleDoesNotTakeForItsOwnAnswerIsRefused) {
  EXPECT_EQ(label_problem(2.5, {}, "dapo", {}),
            "dapo: the label \"2.5\" is not a whole number, which is all that dapo compares; math "
            "compares others");
  EXPECT_THAT(label_problem("}", {}, "math", {}).value_or(""),
              HasSubstr("math: no response can be right by the label \"}\""));
  // The rule reads the last 100 characters.
  EXPECT_THAT(label_problem(json::string(std::string(120, 'x')), {}, "dapo_box", {}).value_or(""),
              HasSubstr("dapo_box: no response can be right by the label"));
  EXPECT_THAT(label_problem("no digits", {}, "gsm8k", {}).value_or(""),
              HasSubstr("gsm8k: the label \"no digits\" has no number"));
}

TEST(Gsm8k, ReadsTheNumberThatIsStated) {
  const auto score = [](const char* response, const char* label) {
    return make_reward("gsm8k")(labelled(response, label)).value() == json::value(1);
  };
  EXPECT_TRUE(score("2+2=4\n#### 4", "... #### 4"));
  EXPECT_TRUE(score("#### $1,234.50 in all, not 7", "1234.5"));
  EXPECT_TRUE(score("3 of 4 is \\boxed{0.75}, so 8", "0.75"));
  EXPECT_TRUE(score("The answer is 18 dollars.", "18"));
  EXPECT_TRUE(score("#### -3", "-3"));
  EXPECT_TRUE(score("5-3", "3"));
  EXPECT_TRUE(score("#### \xd9\xa1\xd9\xa8", "18"));  // Arabic digits
  EXPECT_FALSE(score("#### 5\nso 4", "4"));
  EXPECT_FALSE(score("#### none", "4"));
  EXPECT_FALSE(score("12345678901234567890", "12345678901234567891"));
  EXPECT_FALSE(score("", "0"));
}

}  // namespace
}  // namespace slime::reward
