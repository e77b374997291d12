// Every golden case of the native rewards (tests/golden/README.md).

#include <set>

#include "core/golden_test.h"

#include "reward/boxed.h"
#include "reward/math_equality.h"
#include "reward/math_normal_form.h"
#include "reward/reward.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

json::value to_json(std::optional<std::string_view> text) {
  return text ? json::value(*text) : json::value();
}

json::value call_helper(std::string_view function, std::string_view text) {
  if (function == "sympy_normalize")
    return json::string(sympy_normal_form(text, Grading::kOriginal));
  if (function == "mathd_normalize_answer")
    return json::string(mathd_normal_form(text, Grading::kOriginal));
  if (function == "dapo_normalize_final_answer") return json::string(dapo_normal_form(text));
  if (function == "f1_normalize_answer") return json::string(f1_normal_form(text));
  if (function == "last_boxed_only_string") return to_json(last_boxed_expression(text));
  if (function == "dapo_last_boxed_only_string") return to_json(last_boxed_with_braces(text));
  if (function == "extract_answer") return to_json(extract_answer(text));
  if (function == "is_frac") return is_fraction(text);
  if (function == "should_allow_eval") return allows_evaluation(text);
  if (function == "split_tuple") {
    json::array elements;
    for (const std::string& element : split_tuple(text)) elements.emplace_back(element);
    return elements;
  }
  ADD_FAILURE() << "no helper " << function;
  return nullptr;
}

/// The sample of a case; a null response is an empty one.
Sample sample_of(const json::object& inputs) {
  Sample sample;
  if (const json::value* response = inputs.if_contains("response");
      response != nullptr && response->is_string()) {
    sample.response = std::string(response->get_string());
  }
  sample.label = inputs.at("label");
  if (const json::value* metadata = inputs.if_contains("metadata");
      metadata != nullptr && metadata->is_object()) {
    sample.metadata = metadata->get_object();
  }
  return sample;
}

GOLDEN_TEST(RewardHelpers, "reward_string_helpers.json") {
  EXPECT_EQ(call_helper(c.at("params").at("function").get_string(),
                        c.at("inputs").at("value").get_string()),
            c.at("expected").at("result"));
}

GOLDEN_TEST(MathRewards, "rewards_math_deepscaler.json") {
  const json::object& inputs = c.at("inputs").get_object();
  const json::object& expected = c.at("expected").get_object();
  if (c.at("params").at("function") == "grade_pair") {
    const std::string_view given = inputs.at("given_answer").get_string();
    const std::string_view truth = inputs.at("ground_truth").get_string();
    EXPECT_EQ(json::value(mathd_equal(given, truth, Grading::kOriginal)),
              expected.at("mathd_equal"));
    EXPECT_EQ(json::value(sympy_equal(given, truth, Grading::kOriginal)),
              expected.at("sympy_equal"));
    EXPECT_EQ(json::value(is_correct(given, truth, Grading::kOriginal)), expected.at("correct"));
  } else {
    const RewardFn reward = make_reward(std::string(c.at("params").at("rm_type").get_string()),
                                        {.grading = Grading::kOriginal});
    EXPECT_EQ(reward(sample_of(inputs)).value(), expected.at("reward"));
  }
}

GOLDEN_TEST(DapoReward, "rewards_dapo.json") {
  const json::object& inputs = c.at("inputs").get_object();
  const std::string_view response = inputs.at("response").get_string();
  const json::value& label = inputs.at("label");
  EXPECT_EQ((c.at("params").at("strict_box_verify").get_bool()
                 ? score_dapo_box(response, label)
                 : score_dapo(response, label, Grading::kOriginal))
                .value(),
            c.at("expected"));
}

GOLDEN_TEST(F1Reward, "rewards_f1.json") {
  const RewardFn reward = make_reward("f1", {.grading = Grading::kOriginal});
  const Sample sample = sample_of(c.at("inputs").get_object());
  const F1 overlap = word_overlap(sample.response, sample.label.get_string());
  EXPECT_DOUBLE_EQ(overlap.f1, c.at("expected").at("f1").to_number<double>());
  EXPECT_DOUBLE_EQ(overlap.precision, c.at("expected").at("precision").to_number<double>());
  EXPECT_DOUBLE_EQ(overlap.recall, c.at("expected").at("recall").to_number<double>());
  EXPECT_DOUBLE_EQ(reward(sample).value().to_number<double>(),
                   c.at("expected").at("reward").to_number<double>());
}

GOLDEN_TEST(GpqaReward, "rewards_gpqa.json") {
  const RewardFn reward = make_reward("gpqa", {.grading = Grading::kOriginal});
  const json::object& inputs = c.at("inputs").get_object();
  if (c.at("params").at("function") == "reward") {
    EXPECT_EQ(reward(sample_of(inputs)).value(), c.at("expected").at("reward"));
    return;
  }
  std::string letters;
  for (const json::value& letter : inputs.at("valid_letters").get_array())
    letters += std::string(letter.get_string());
  const std::string response =
      inputs.at("response").is_null() ? "" : std::string(inputs.at("response").get_string());
  const std::optional<char> letter = choice_letter(response, letters, Grading::kOriginal);
  EXPECT_EQ(letter ? json::value(std::string(1, *letter)) : json::value(),
            c.at("expected").at("letter"));
}

json::array cases_of(const std::string& file) {
  return read_json_file(SLIME_SOURCE_DIR "/tests/golden/" + file).as_array();
}

/// Null for a sample that fails.
json::value strict_score(const std::string& type, const json::object& inputs) {
  return make_reward(type)(sample_of(inputs)).value_or(json::value());
}

/// The cases in which strict grading decides otherwise than the original: the whole difference.
TEST(StrictGrading, DiffersFromTheOriginalOnlyInTheseCases) {
  std::set<std::string> differing;
  const auto note = [&](const json::object& c, const json::value& original,
                        const json::value& strict) {
    if (original != strict) differing.emplace(c.at("name").get_string());
  };
  for (const json::value& value : cases_of("rewards_math_deepscaler.json")) {
    const json::object& c = value.get_object();
    const json::object& inputs = c.at("inputs").get_object();
    if (c.at("params").at("function") == "grade_pair") {
      const std::string_view given = inputs.at("given_answer").get_string();
      const std::string_view truth = inputs.at("ground_truth").get_string();
      note(c, is_correct(given, truth, Grading::kOriginal),
           is_correct(given, truth, Grading::kStrict));
    } else {
      const std::string type(c.at("params").at("rm_type").get_string());
      note(c, c.at("expected").at("reward"), strict_score(type, inputs));
    }
  }
  for (const json::value& value : cases_of("rewards_dapo.json")) {
    const json::object& c = value.get_object();
    if (c.at("params").at("strict_box_verify").get_bool()) continue;
    const json::object& inputs = c.at("inputs").get_object();
    note(c, c.at("expected"),
         score_dapo(inputs.at("response").get_string(), inputs.at("label"), Grading::kStrict)
             .value());
  }
  for (const json::value& value : cases_of("rewards_gpqa.json")) {
    const json::object& c = value.get_object();
    if (c.at("params").at("function") != "reward") continue;
    note(c, c.at("expected").at("reward"), strict_score("gpqa", c.at("inputs").get_object()));
  }
  for (const json::value& value : cases_of("rewards_f1.json")) {
    const json::object& c = value.get_object();
    note(c, c.at("expected").at("reward"), strict_score("f1", c.at("inputs").get_object()));
  }
  EXPECT_EQ(differing, (std::set<std::string>{
                           "pair_068",        // 20 digits, the last one differs
                           "pair_096",        // 12 for 12.00000001: tolerances are relative
                           "math_005",        // 0 is a label like other numbers
                           "math_003",        // labels that say nothing: "",
                           "math_004",        // null,
                           "deepscaler_019",  // "",
                           "deepscaler_029",  // a box that never closes,
                           "f1_12",           // "the",
                           "reward_09",       // gpqa: the fourth of two choices
                       }));
}

TEST(StrictGrading, WhatIsSmallIsNotNothing) {
  for (const char* type : {"math", "deepscaler"}) {
    const auto score = [type](const std::string& answer, const char* label) {
      return strict_score(type,
                          {{"response", "</think>\\boxed{" + answer + "}"}, {"label", label}});
    };
    EXPECT_EQ(score("0", "6.626e-34"), json::value(0)) << type;
    EXPECT_EQ(score("1.6e-19", "9.1e-31"), json::value(0)) << type;
    EXPECT_EQ(score("0.0000000000000000001", "0.0000000000000000002"), json::value(0)) << type;
    EXPECT_EQ(score("9.109e-31", "9.109e-31"), json::value(1)) << type;
    EXPECT_EQ(score("3.0", "3"), json::value(1)) << type;
  }
}

}  // namespace
}  // namespace slime::reward
