#include "buffer/known_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "buffer/dataset_row.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

using testing::HasSubstr;

const RowKeys kPrompts{};
const RowKeys kSupervised{.takes_labels = false, .completion = "completion"};
const RowKeys kPairs{.takes_labels = false, .chosen = "chosen", .rejected = "rejected"};

DatasetRow row_of(const char* line, const RowKeys& keys) { return read_row(line, keys, "x"); }

std::string refusal(const char* line, const RowKeys& keys) {
  try {
    row_of(line, keys);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kGsm8k =
    R"({"question": "Ann has 3 apples and buys 1,000. How many?", "answer": "3 + 1000 = <<3+1000=1003>>1003\n#### 1,003"})";

TEST(KnownSchema, Gsm8kHasItsLabelBehindFourSigns) {
  const DatasetRow row = row_of(kGsm8k, kPrompts);
  EXPECT_EQ(row.prompt, "Ann has 3 apples and buys 1,000. How many?");
  EXPECT_EQ(row.label, "1,003");
  EXPECT_THAT(row.schema, HasSubstr("GSM8K: question is the prompt"));
  const DatasetRow trained = row_of(kGsm8k, kSupervised);
  EXPECT_THAT(std::string(trained.metadata.at("completion").as_string()), HasSubstr("#### 1,003"));
  EXPECT_TRUE(trained.label.is_null());
}

TEST(KnownSchema, WhatTheFlagsNameIsReadAsTheySay) {
  const DatasetRow row = row_of(kGsm8k, {.input = "question", .label = "answer"});
  EXPECT_EQ(row.schema, "");
  EXPECT_THAT(std::string(row.label.as_string()), HasSubstr("#### 1,003"));
  EXPECT_THAT(refusal(kGsm8k, {.input = "qestion"}), HasSubstr("no field \"qestion\""));
  EXPECT_THAT(refusal(kGsm8k, {.format = "none"}), HasSubstr("no field \"input\""));
  const DatasetRow own = row_of(R"({"input": "i", "question": "q", "answer": "#### 1"})", kPrompts);
  EXPECT_EQ(own.prompt, "i");
  EXPECT_EQ(own.schema, "");
  EXPECT_THAT(refusal(R"({"input": "i"})", {.format = "gsm8k"}),
              HasSubstr("x: is no row of GSM8K (--data-format gsm8k): question is the prompt"));
}

TEST(KnownSchema, MathHasItsLabelInABoxOrOfItsOwn) {
  const DatasetRow boxed = row_of(
      R"({"problem": "p", "solution": "so \\boxed{1} and $\\boxed{\\frac{1}{2}}$.", "level": "5"})",
      kPrompts);
  EXPECT_EQ(boxed.label, "\\frac{1}{2}");
  const DatasetRow own =
      row_of(R"({"problem": "p", "solution": "s", "answer": "7", "unique_id": "u"})", kPrompts);
  EXPECT_EQ(own.prompt, "p");
  EXPECT_EQ(own.label, "7");
  EXPECT_THAT(refusal(R"({"problem": "p", "solution": "no box, \\boxed{open"})", kPrompts),
              HasSubstr("no field \"input\""));
}

TEST(KnownSchema, DapoHasMessagesAndANestedLabel) {
  const DatasetRow row = row_of(
      R"({"data_source": "math_dapo", "prompt": [{"role": "user", "content": "q"}],
          "reward_model": {"ground_truth": "34", "style": "rule"}, "extra_info": {"index": "9"}})",
      kPrompts);
  EXPECT_EQ(row.prompt.as_array().size(), 1U);
  EXPECT_EQ(row.label, "34");
}

constexpr const char* kShareGpt =
    R"({"id": "1", "system_prompt": "Be brief.", "conversations": [
        {"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]})";

TEST(KnownSchema, SpeakersOfShareGptAreRoles) {
  const DatasetRow trained = row_of(kShareGpt, kSupervised);
  EXPECT_EQ(trained.prompt, parse_json(R"([{"role": "system", "content": "Be brief."},
                                           {"role": "user", "content": "hi"},
                                           {"role": "assistant", "content": "yo"}])",
                                       "x"));
  // A prompt ends with the last question.
  EXPECT_EQ(row_of(kShareGpt, kPrompts).prompt.as_array().size(), 2U);
  const DatasetRow strange =
      row_of(R"({"conversations": [{"from": "owl", "value": "hoo"}]})", kSupervised);
  EXPECT_EQ(strange.prompt.as_array().at(0).at("role"), "owl");  // which a template may refuse
}

TEST(KnownSchema, UltraFeedbackIsAPairOrItsBetterAnswer) {
  const char* line =
      R"({"prompt": "hi", "prompt_id": "1", "score_chosen": 8.5,
          "chosen": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
          "rejected": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "no"}]})";
  const DatasetRow pair = row_of(line, kPairs);
  EXPECT_EQ(pair.prompt.as_array().size(), 1U);
  EXPECT_EQ(pair.metadata.at("chosen").as_array().size(), 1U);
  EXPECT_EQ(row_of(line, kSupervised).prompt.as_array().size(), 2U);
  EXPECT_EQ(row_of(line, kPrompts).prompt, "hi");
}

TEST(KnownSchema, AlpacasInputIsHalfAPrompt) {
  const char* line = R"({"instruction": "Add.", "input": "2, 3", "output": "5"})";
  EXPECT_EQ(row_of(line, kPrompts).prompt, "Add.\n\n2, 3");
  const DatasetRow trained =
      row_of(R"({"instruction": "Say hi.", "input": "", "output": "hi"})", kSupervised);
  EXPECT_EQ(trained.prompt, "Say hi.");
  EXPECT_EQ(trained.metadata.at("completion"), "hi");
}

TEST(KnownSchema, MessagesAreAConversation) {
  const char* line = R"({"messages": [{"role": "user", "content": "hi"},
                                      {"role": "assistant", "content": "yo"}]})";
  EXPECT_EQ(row_of(line, kSupervised).prompt.as_array().size(), 2U);
  EXPECT_EQ(row_of(line, kPrompts).prompt.as_array().size(), 1U);
}

TEST(KnownSchema, OtherRowsAreRefusedAsBefore) {
  for (const char* line : {R"({"prompt": "p"})", R"({"question": "q", "answer": "no mark"})",
                           R"({"conversations": [{"text": "t"}]})", R"({"messages": []})",
                           R"({"conversations": "[]"})", "{}"})
    EXPECT_THAT(refusal(line, kPrompts), HasSubstr("no field \"input\"")) << line;
}

}  // namespace
}  // namespace slime::buffer
