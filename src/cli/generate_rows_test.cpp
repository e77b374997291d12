#include "cli/generate_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::cli {
namespace {

using testing::HasSubstr;

json::object line(const char* text) { return parse_json(text, "line").as_object(); }

json::object request_of(const char* text, const RowOptions& options = {}) {
  return to_request(line(text), 7, options).request;
}

TEST(GenerateRows, WhatIsNoFieldOfOursIsMetadata) {
  const RowRequest made = to_request(
      line(R"({"prompt": "2+3?", "label": "5", "source": "mine", "metadata": {"level": 1}})"), 7,
      {});
  EXPECT_EQ(made.request, line(R"({"text": "2+3?", "sampling_params": {}})"));
  EXPECT_EQ(made.row.at("metadata"), json::value(line(R"({"level": 1, "source": "mine"})")));
  EXPECT_EQ(made.row.at("label"), "5");
  EXPECT_EQ(made.row.at("group"), 7);
}

TEST(GenerateRows, ATextIsAMessageWhereTheTemplateIsApplied) {
  EXPECT_EQ(request_of(R"({"prompt": "hi"})", {.applies_template = true}),
            line(R"({"messages": [{"role": "user", "content": "hi"}], "sampling_params": {}})"));
  EXPECT_EQ(request_of(R"({"messages": [{"role": "user", "content": "hi"}], "tools": []})"),
            line(R"({"messages": [{"role": "user", "content": "hi"}], "options": {"tools": []},
                     "sampling_params": {}})"));
}

TEST(GenerateRows, ARowsOwnSamplingWinsAndSamplesAreAskedForTogether) {
  const RowOptions options{.samples = 4,
                           .sampling_params = line(R"({"temperature": 1, "top_p": 0.9})")};
  EXPECT_EQ(request_of(R"({"text": "hi", "sampling_params": {"temperature": 0.5}})", options)
                .at("sampling_params"),
            json::value(line(R"({"temperature": 0.5, "top_p": 0.9, "n": 4})")));
}

TEST(GenerateRows, ARowThatWasAnsweredBeforeIsAskedAgain) {
  const RowRequest made =
      to_request(line(R"({"prompt": "a", "response": "old", "score": 1, "group": 0})"), 7, {});
  EXPECT_EQ(made.row.at("response"), "");
  EXPECT_FALSE(made.row.contains("score"));
  EXPECT_EQ(made.row.at("metadata"), json::value(json::object()));
}

TEST(GenerateRows, AnswersSayHowTheyEnded) {
  const json::object row = to_request(line(R"({"prompt": "a"})"), 0, {}).row;
  const auto answered = [&](const char* answer) { return to_answered_row(row, line(answer)); };
  EXPECT_EQ(
      answered(R"({"text": "b", "meta_info": {"finish_reason": {"type": "stop"}}})").at("status"),
      "completed");
  const json::object cut =
      answered(R"({"text": "b", "meta_info": {"finish_reason": {"type": "length"}}})");
  EXPECT_EQ(cut.at("status"), "truncated");
  EXPECT_EQ(cut.at("response"), "b");
  const json::object failed = answered(R"({"error": {"message": "too long"}})");
  EXPECT_EQ(failed.at("status"), "failed");
  EXPECT_EQ(failed.at("failure"), "too long");
}

TEST(GenerateRows, ARowWithoutAPromptIsRefused) {
  try {
    request_of(R"({"question": "a"})");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no field \"prompt\""));
  }
  EXPECT_THROW(request_of(R"({"prompt": 3})"), ConfigError);
  EXPECT_EQ(request_of(R"({"question": "a"})", {.input_key = "question"}).at("text"), "a");
}

}  // namespace
}  // namespace slime::cli
