// Every golden case of the native rewards (tests/golden/README.md).

#include <gtest/gtest.h>

#include "reward/boxed.h"
#include "reward/math_equality.h"
#include "reward/math_normal_form.h"
#include "reward/reward.h"
#include "reward/scores.h"

namespace slime::reward {
namespace {

json::array golden(const std::string& name) {
  return read_json_file(std::string(SLIME_SOURCE_DIR "/tests/golden/") + name).get_array();
}

json::value to_json(std::optional<std::string_view> text) {
  return text ? json::value(*text) : json::value();
}

json::value call_helper(std::string_view function, std::string_view text) {
  if (function == "sympy_normalize") return json::string(sympy_normal_form(text));
  if (function == "mathd_normalize_answer") return json::string(mathd_normal_form(text));
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

TEST(RewardGolden, StringHelpers) {
  for (const json::value& test : golden("reward_string_helpers.json")) {
    SCOPED_TRACE(json::serialize(test));
    EXPECT_EQ(call_helper(test.at("params").at("function").get_string(),
                          test.at("inputs").at("value").get_string()),
              test.at("expected").at("result"));
  }
}

TEST(RewardGolden, MathAndDeepscaler) {
  for (const json::value& test : golden("rewards_math_deepscaler.json")) {
    SCOPED_TRACE(json::serialize(test));
    const json::object& inputs = test.at("inputs").get_object();
    const json::object& expected = test.at("expected").get_object();
    if (test.at("params").at("function") == "grade_pair") {
      const std::string_view given = inputs.at("given_answer").get_string();
      const std::string_view truth = inputs.at("ground_truth").get_string();
      EXPECT_EQ(json::value(mathd_equal(given, truth)), expected.at("mathd_equal"));
      EXPECT_EQ(json::value(sympy_equal(given, truth)), expected.at("sympy_equal"));
      EXPECT_EQ(json::value(is_correct(given, truth)), expected.at("correct"));
    } else {
      const RewardFn reward =
          make_reward(std::string(test.at("params").at("rm_type").get_string()));
      EXPECT_EQ(reward(sample_of(inputs)).value(), expected.at("reward"));
    }
  }
}

TEST(RewardGolden, Dapo) {
  for (const json::value& test : golden("rewards_dapo.json")) {
    SCOPED_TRACE(json::serialize(test));
    const json::object& inputs = test.at("inputs").get_object();
    EXPECT_EQ(score_dapo(inputs.at("response").get_string(), inputs.at("label"),
                         test.at("params").at("strict_box_verify").get_bool())
                  .value(),
              test.at("expected"));
  }
}

TEST(RewardGolden, F1) {
  const RewardFn reward = make_reward("f1");
  for (const json::value& test : golden("rewards_f1.json")) {
    SCOPED_TRACE(json::serialize(test));
    const Sample sample = sample_of(test.at("inputs").get_object());
    const F1 overlap = word_overlap(sample.response, sample.label.get_string());
    EXPECT_DOUBLE_EQ(overlap.f1, test.at("expected").at("f1").to_number<double>());
    EXPECT_DOUBLE_EQ(overlap.precision, test.at("expected").at("precision").to_number<double>());
    EXPECT_DOUBLE_EQ(overlap.recall, test.at("expected").at("recall").to_number<double>());
    EXPECT_DOUBLE_EQ(reward(sample).value().to_number<double>(),
                     test.at("expected").at("reward").to_number<double>());
  }
}

TEST(RewardGolden, Gpqa) {
  const RewardFn reward = make_reward("gpqa");
  for (const json::value& test : golden("rewards_gpqa.json")) {
    SCOPED_TRACE(json::serialize(test));
    const json::object& inputs = test.at("inputs").get_object();
    if (test.at("params").at("function") == "reward") {
      EXPECT_EQ(reward(sample_of(inputs)).value(), test.at("expected").at("reward"));
      continue;
    }
    std::string letters;
    for (const json::value& letter : inputs.at("valid_letters").get_array())
      letters += std::string(letter.get_string());
    const std::string response =
        inputs.at("response").is_null() ? "" : std::string(inputs.at("response").get_string());
    const std::optional<char> letter = choice_letter(response, letters);
    EXPECT_EQ(letter ? json::value(std::string(1, *letter)) : json::value(),
              test.at("expected").at("letter"));
  }
}

}  // namespace
}  // namespace slime::reward
