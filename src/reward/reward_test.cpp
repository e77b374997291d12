#include "reward/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

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

double number_of(const std::string& type, const std::string& response, const json::value& label,
                 Grading grading, json::object metadata = {}) {
  Sample sample = answered(response, label);
  sample.metadata = std::move(metadata);
  const json::value score = make_reward(type, {.grading = grading})(sample).value();
  return (score.is_object() ? score.get_object().at("score") : score).to_number<double>();
}

TEST(Reward, ListsTheKnownTypesForAnUnknownOne) {
  try {
    make_reward("mth");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--rm-type mth: unknown; there are dapo, dapo_box, "
                                        "deepscaler, f1, gpqa, gsm8k, ifbench, math, "
                                        "random, remote_rm"));
  }
}

TEST(Reward, AMistypedTypeIsOfferedAsItIsSpelled) {
  const auto says = [](const char* type) { return type_problem({}, type, {}).value_or(""); };
  EXPECT_THAT(says("maths"), HasSubstr("; did you mean math?"));
  EXPECT_THAT(says("boxed_gsmk8"), HasSubstr("; did you mean boxed_gsm8k?"));
  EXPECT_THAT(says("poetry"), testing::Not(HasSubstr("did you mean")));
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
  EXPECT_THAT(make_reward("math")(sample).error().message, HasSubstr("rm_type mth: unknown"));
}

TEST(Reward, BoxedGivesTheRuleWhatTheBoxHolds) {
  EXPECT_EQ(make_reward("boxed_f1")(answered("so \\boxed{new york}", "New York")).value(),
            json::value(1.0));
  EXPECT_EQ(make_reward("boxed_f1")(answered("no box: New York", "New York")).value(),
            json::value(0.0));
}

/// A row that no response can be right by, and what is said of it.
struct UselessRow {
  const char* type;
  json::value label;
  json::object metadata;
  const char* says;
};

std::vector<UselessRow> useless_rows() {
  const json::object four{{"choices", json::array{"London", "Paris", "Berlin", "Rome"}}};
  const auto instructions = [](const json::value& list, const json::value& kwargs = nullptr) {
    return json::object{{"instruction_id_list", list}, {"kwargs", kwargs}};
  };
  std::vector<UselessRow> rows;
  for (const char* type :
       {"math", "deepscaler", "dapo", "dapo_box", "f1", "boxed_f1", "gsm8k", "boxed_math"}) {
    rows.push_back({type, nullptr, {}, ": the label is missing"});
    rows.push_back({type, "", {}, ": the label is empty"});
    rows.push_back({type, " \n", {}, ": the label is empty"});
    rows.push_back({type, json::array(), {}, ": the label is an empty list"});
    rows.push_back({type, json::array{true}, {}, ": the label should be a string or a number"});
    rows.push_back({type, json::object(), {}, ": the label should be a string or a number, it is"});
    rows.push_back({type, true, {}, ": the label should be a string or a number, it is true"});
  }
  for (const char* type : {"math", "deepscaler"}) {
    rows.push_back(
        {type, "so \\boxed 5", {}, "the box of the label \"so \\\\boxed 5\" holds nothing"});
    rows.push_back({type, "\\boxed{ }", {}, "holds nothing"});
  }
  rows.push_back({"dapo", "four", {}, "dapo: the label \"four\" is not a number"});
  rows.push_back({"f1", "the.", {}, "f1: the label \"the.\" has no word but articles"});
  rows.push_back({"gpqa", nullptr, four, "gpqa: the label is missing, and metadata has no"});
  rows.push_back({"gpqa", "", {}, "gpqa: the label \"\" names none of the choices ABCDEFGHIJ"});
  rows.push_back({"gpqa", 7, four, "gpqa: the label 7 names none of the choices ABCD"});
  rows.push_back({"gpqa", "Z", four, "gpqa: the label \"Z\" names none of the choices ABCD"});
  rows.push_back({"ifbench", "x", {}, "ifbench: metadata has no instruction_id_list"});
  rows.push_back({"ifbench", "x", instructions(json::array()), "instruction_id_list is empty"});
  rows.push_back({"ifbench", "x", instructions({nullptr, " "}), "instruction_id_list is empty"});
  rows.push_back({"ifbench", "x", instructions("count:numbers"), "should be a list of names"});
  rows.push_back({"ifbench", "x", instructions({"count:nmbers"}), "unknown instruction count:nm"});
  rows.push_back({"ifbench", "x", instructions({"count:numbers"}), "ifbench: count:numbers: "});
  rows.push_back({"ifbench", "x",
                  instructions({"punctuation:no_comma", "count:numbers"}, json::object{{"N", "2"}}),
                  "ifbench: count:numbers: "});
  rows.push_back({"ifbench", "x", instructions({"words:start_verb"}), "a part-of-speech tagger"});
  return rows;
}

TEST(Reward, ARowThatNoResponseCanBeRightByIsAFailureAndNoZeroWhateverTheResponse) {
  for (const UselessRow& row : useless_rows()) {
    SCOPED_TRACE(std::string(row.type) + " " + json_text(row.label));
    EXPECT_THAT(label_problem(row.label, row.metadata, row.type, {}).value_or("none"),
                HasSubstr(row.says));
    for (const char* response : {"", "four, so", "Answer: 4", "</think>\\boxed{4}", "\\boxed{4}"}) {
      Sample sample = answered(response, row.label);
      sample.metadata = row.metadata;
      const Expected<json::value> score = make_reward(row.type)(sample);
      ASSERT_FALSE(score) << response << ": " << json_text(*score);
      EXPECT_THAT(score.error().message, HasSubstr(row.says)) << response;
    }
  }
}

TEST(Reward, WhatTheOriginalScoresZeroInSilenceItDoesBehindItsFlag) {
  for (const json::value& label : {json::value(), json::value(""), json::value(0)}) {
    EXPECT_EQ(label_problem(label, {}, "math", {.grading = Grading::kOriginal}), std::nullopt);
    EXPECT_EQ(
        make_reward("math", {.grading = Grading::kOriginal})(answered("\\boxed{0}", label)).value(),
        json::value(0));
  }
}

TEST(Reward, WhatCanBeUsedHasNoProblem) {
  EXPECT_EQ(label_problem(0, {}, "math", {}), std::nullopt);
  EXPECT_EQ(make_reward("math")(answered("\\boxed{0}", 0)).value(), json::value(1));
  EXPECT_EQ(label_problem("so \\boxed{5}", {}, "deepscaler", {}), std::nullopt);
  EXPECT_EQ(label_problem("$1{,}000$", {}, "dapo", {}), std::nullopt);
  EXPECT_EQ(label_problem(nullptr, {{"answer_text", "Paris"}}, "gpqa", {}), std::nullopt);
  EXPECT_EQ(label_problem(2, {}, "gpqa", {}), std::nullopt);
  EXPECT_EQ(label_problem(nullptr, {{"instruction_id_list", json::array{"punctuation:no_comma"}}},
                          "ifbench", {}),
            std::nullopt);
  for (const char* type : {"random", "remote_rm", "mth", ""})
    EXPECT_EQ(label_problem(nullptr, {}, type, {}), std::nullopt) << type;
}

TEST(Reward, ATypeThatIsNoStringOrHasNoServerFailsAtOnce) {
  Sample sample = answered("\\boxed{4}", "4");
  sample.metadata["rm_type"] = 5;
  EXPECT_THAT(make_reward("math")(sample).error().message, HasSubstr("rm_type 5: should be a"));
  sample.metadata["rm_type"] = "remote_rm";
  EXPECT_THAT(make_reward("math")(sample).error().message, HasSubstr("needs --rm-url"));
}

TEST(Reward, DapoBoxReadsTheBoxAndNoNormalForm) {
  const RewardFn reward = make_reward("dapo_box");
  EXPECT_EQ(reward(answered("so \\boxed{42}", 42)).value().at("score"), json::value(1.0));
  EXPECT_EQ(reward(answered("so \\boxed{042}", "42")).value().at("pred"), json::value("042"));
  EXPECT_EQ(reward(answered("Answer: 42", "42")).value().at("score"), json::value(-1.0));
}

TEST(Reward, ALabelThatTheRuleCannotUseIsAFailureAndNoZero) {
  EXPECT_THAT(make_reward("dapo")(answered("Answer: 4", "four")).error().message,
              HasSubstr("\"four\" is not a number"));
  EXPECT_FALSE(make_reward("dapo")(answered("Answer: 4", nullptr)));
  EXPECT_FALSE(make_reward("deepscaler")(answered("</think>\\boxed{4}", nullptr)));
  EXPECT_FALSE(make_reward("f1")(answered("four", json::object())));
}

TEST(StrictGrading, AnApproximationOfARootIsWrongInBothGradings) {
  for (const Grading grading : {Grading::kStrict, Grading::kOriginal}) {
    EXPECT_EQ(number_of("math", "\\boxed{\\frac{47321}{33461}}", "\\sqrt{2}", grading), 0);
    EXPECT_EQ(number_of("math", "\\boxed{\\frac{2}{\\sqrt{2}}}", "\\sqrt{2}", grading), 1);
  }
}

TEST(StrictGrading, AnEquationDefinesANameNotANumber) {
  EXPECT_EQ(number_of("math", "\\boxed{0=5}", "5", Grading::kStrict), 0);
  EXPECT_EQ(number_of("math", "\\boxed{0=5}", "5", Grading::kOriginal), 1);
  EXPECT_EQ(number_of("math", "\\boxed{x=5}", "5", Grading::kStrict), 1);
  EXPECT_EQ(number_of("math", "\\boxed{k = 7}", "7", Grading::kStrict), 1);
}

TEST(StrictGrading, NothingIsNoUnit) {
  EXPECT_EQ(number_of("math", "\\boxed{}", "day", Grading::kStrict), 0);
  EXPECT_EQ(number_of("math", "\\boxed{}", "day", Grading::kOriginal), 1);
  EXPECT_EQ(number_of("math", "\\boxed{hours}", "day", Grading::kStrict), 0);
  EXPECT_EQ(number_of("math", "\\boxed{day}", "day", Grading::kStrict), 1);
  EXPECT_EQ(number_of("math", "\\boxed{Mon}", "Monday", Grading::kStrict), 0);
  EXPECT_EQ(number_of("math", "\\boxed{Mon}", "Monday", Grading::kOriginal), 1);
  EXPECT_EQ(number_of("math", "\\boxed{5\\text{ days}}", "5", Grading::kStrict), 1);
  EXPECT_EQ(number_of("math", "\\boxed{45 degrees}", "45", Grading::kStrict), 1);
  EXPECT_EQ(number_of("math", "\\boxed{3cm^2}", "3", Grading::kStrict), 1);
}

TEST(StrictGrading, EveryDigitOfAnIntegerCounts) {
  EXPECT_EQ(
      number_of("math", "\\boxed{12345678901234567890}", "12345678901234567891", Grading::kStrict),
      0);
  EXPECT_EQ(number_of("math", "\\boxed{12,345,678,901,234,567,891}", "12345678901234567891",
                      Grading::kStrict),
            1);
  EXPECT_EQ(number_of("math", "\\boxed{1,234,567,890}", "1234567890", Grading::kStrict), 1);
  EXPECT_EQ(number_of("math", "\\boxed{1,234,567,890}", "1234567890", Grading::kOriginal), 0);
  EXPECT_EQ(number_of("math", "\\boxed{1,23,456,789}", "123456789", Grading::kStrict), 0);
  EXPECT_EQ(number_of("math", "\\boxed{+007}", "7", Grading::kStrict), 1);
}

TEST(StrictGrading, DapoReadsANumberWhereItsDigitsStandTogether) {
  const auto dapo = [](const char* answer, const char* label) {
    return number_of("dapo", std::string("So. Answer: ") + answer, label, Grading::kStrict);
  };
  EXPECT_EQ(dapo("1,2", "12"), -1);
  EXPECT_EQ(number_of("dapo", "Answer: 1,2", "12", Grading::kOriginal), 1);
  EXPECT_EQ(dapo("1 2", "12"), -1);
  EXPECT_EQ(dapo("1 units 2", "12"), -1);
  EXPECT_EQ(dapo("0=12", "12"), -1);
  EXPECT_EQ(dapo("1,234", "1234"), 1);
  EXPECT_EQ(dapo("$1{,}234{,}567$", "1234567"), 1);
  EXPECT_EQ(dapo("1\\,234", "1234"), -1);  // the normal form of the original keeps the blank
  EXPECT_EQ(dapo("12,34", "1234"), -1);
  EXPECT_EQ(dapo("$x = -7$ cm", "-7"), 1);
  EXPECT_EQ(dapo("40+2 = 42", "42"), 1);
  EXPECT_EQ(dapo("\\boxed{42}", "42"), 1);
}

TEST(StrictGrading, GpqaTakesNoLetterOutOfAWord) {
  EXPECT_EQ(number_of("gpqa", "abcd", "A", Grading::kStrict), 0);
  EXPECT_EQ(number_of("gpqa", "abcd", "A", Grading::kOriginal), 1);
  EXPECT_EQ(number_of("gpqa", "the answer is definitely C", "D", Grading::kStrict), 0);
  EXPECT_EQ(number_of("gpqa", "the answer is definitely C", "C", Grading::kStrict), 1);
  for (const char* said : {"The answer is (D)", "**Answer:** D", "Answer: **D**", "\\boxed{D}", "D",
                           "Answer: $\\boxed{\\text{D}}$", "D is the correct one", "option d"})
    EXPECT_EQ(number_of("gpqa", said, "D", Grading::kStrict), 1) << said;
  EXPECT_EQ(number_of("gpqa", "I am sure", "I", Grading::kStrict), 0);
  const json::object metadata{{"choices", json::array{"London", "Paris", "Paris Texas"}}};
  EXPECT_EQ(number_of("gpqa", "definitely paris", "Paris", Grading::kStrict, metadata), 1);
  EXPECT_EQ(number_of("gpqa", "london or paris", "Paris", Grading::kStrict, metadata), 0);
  EXPECT_EQ(number_of("gpqa", "comparison", "Paris", Grading::kStrict, metadata), 0);
}

TEST(Reward, WhatARowAsksForIsCheckedBeforeItIsGenerated) {
  const auto problem = [](const json::object& metadata, const char* type, const char* url = "") {
    return type_problem(metadata, type, {.url = url}).value_or("");
  };
  EXPECT_EQ(problem({}, "math"), "");
  EXPECT_EQ(problem({{"rm_type", " boxed_f1 "}}, ""), "");
  EXPECT_THAT(problem({{"rm_type", "mth"}}, "math"), HasSubstr("rm_type mth: unknown; there are"));
  EXPECT_THAT(problem({{"rm_type", 7}}, "math"), HasSubstr("rm_type 7: should be a string"));
  EXPECT_THAT(problem({}, ""), HasSubstr("no reward type is given"));
  EXPECT_THAT(problem({{"rm_type", "remote_rm"}}, "math"), HasSubstr("needs --rm-url"));
  EXPECT_EQ(problem({{"rm_type", "remote_rm"}}, "math", "http://judge"), "");
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
/// stack. All of them together take seconds; the bound on each is a last resort against a rule that
/// has become quadratic, which would take minutes.
TEST(Reward, HostileResponsesEnd) {
  constexpr std::size_t kSize = 100'000;
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
  std::string roots = "2";
  for (int i = 3; i < 300; ++i) roots += "+sqrt(" + std::to_string(i) + ")";
  bodies.push_back(roots);
  std::string nested_roots = "2";
  for (int i = 0; i < 90; ++i) nested_roots = "sqrt(" + nested_roots + "+x)";
  bodies.push_back(nested_roots);
  std::string logarithms = "x";
  for (int i = 2; i < 200; ++i) logarithms += "+ln(" + std::to_string(i) + ")";
  bodies.push_back(logarithms);
  bodies.push_back("x^x^x^x^x^x^x^x");
  bodies.push_back("400!-399!");
  bodies.push_back("1e308*1e308*x");
  for (const std::string& body : bodies) {
    for (const char* type :
         {"math", "deepscaler", "dapo", "f1", "gpqa", "boxed_f1", "gsm8k", "boxed_dapo"}) {
      const std::string shown = body.substr(0, 12);
      SCOPED_TRACE(std::string(type) + " " + shown);
      const RewardFn reward = make_reward(type);
      for (const std::string& response :
           {"</think>\\boxed{" + body + "}", body, "Answer: " + body, "</think>\\boxed{" + body}) {
        const auto start = std::chrono::steady_clock::now();
        // dapo compares whole numbers.
        const char* label = std::string_view(type).ends_with("dapo") ? "225" : "22.5";
        const Expected<json::value> score = reward(answered(response, label));
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
        ASSERT_TRUE(score);
        const double number = score->is_object() ? score->get_object().at("score").get_double()
                                                 : score->to_number<double>();
        EXPECT_LE(number, 0.0);
      }
    }
  }
}

/// The same for expressions that equal the label, so that the exact comparison has to work.
TEST(Reward, HostileExpressionsAreBounded) {
  std::string roots = "x";
  for (int i = 2; i < 200; ++i) roots += "+sqrt(" + std::to_string(i) + ")";
  std::string powers = "x";
  for (int i = 0; i < 60; ++i) powers = "(" + powers + ")^9";
  std::string logarithms = "x";
  for (int i = 2; i < 200; ++i) logarithms += "+ln(" + std::to_string(i) + ")";
  const std::string digits(1900, '9');
  for (const std::string& text : {roots, powers, logarithms, digits, "sqrt(" + digits + ")"}) {
    const auto start = std::chrono::steady_clock::now();
    number_of("math", "\\boxed{0+" + text + "}", json::string(text + "+0"), Grading::kStrict);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

/// A checker reads the whole response a bounded number of times.
TEST(Reward, HostileResponsesOfInstructionsEnd) {
  const std::array<std::pair<const char*, const char*>, 12> instructions{
      {{"sentence:increment", R"({"small_n": 1})"},
       {"format:title_case", "{}"},
       {"format:emoji", "{}"},
       {"format:quotes", "{}"},
       {"custom:csv_city", "{}"},
       {"custom:mcq_count_length", "{}"},
       {"detectable_format:multiple_sections", R"({"section_spliter": "a", "num_sections": 9})"},
       {"detectable_format:number_highlighted_sections", R"({"num_highlights": 9})"},
       {"detectable_content:postscript", R"({"postscript_marker": "P.P.S"})"},
       {"count:pronouns", R"({"N": 9})"},
       {"detectable_format:json_format", "{}"},
       {"keywords:forbidden_words", R"({"forbidden_words": ["aaaa"]})"}}};
  for (const std::string_view part :
       {"a", ". ", "Question 1", "\"", "\"\"\"", "*", "* ", "p.", "\n", "'", "[",
        "{\"a\":", "\xf0\x9f\x98\x80", "\xff", "a1"}) {
    std::string response;
    while (response.size() < 100'000) response += part;
    for (const auto& [id, arguments] : instructions) {
      SCOPED_TRACE(id);
      Sample sample = answered(response, nullptr);
      sample.metadata = {{"instruction_id_list", json::array{id}},
                         {"kwargs", json::array{parse_json(arguments, "kwargs")}}};
      const auto start = std::chrono::steady_clock::now();
      make_reward("ifbench")(sample);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    }
  }
}

}  // namespace
}  // namespace slime::reward
