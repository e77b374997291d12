#include "buffer/dataset_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::buffer {
namespace {

json::value label_of(std::string_view line, const std::string& key) {
  return read_row(line, {.input = "q", .label = key}, "a.jsonl, line 1").label;
}

TEST(DatasetRow, AKeyMayBeAPathIntoNestedFields) {
  const char* line = R"({"q": "1+1?", "reward_model": {"ground_truth": "2", "style": "rule"},
                         "answers": [{"text": "two"}], "a.b": "whole", "a": {"b": "part"}})";
  EXPECT_EQ(label_of(line, "reward_model.ground_truth"), json::value("2"));
  EXPECT_EQ(label_of(line, "answers.0.text"), json::value("two"));
  EXPECT_EQ(label_of(line, "a.b"), json::value("whole"));  // the name itself comes first
  const DatasetRow row =
      read_row(R"({"extra": {"prompt": "hi", "info": {"x": 1}, "tools": "[{}]"}})",
               {.input = "extra.prompt", .metadata = "extra.info", .tools = "extra.tools"}, "row");
  EXPECT_EQ(row.prompt, json::value("hi"));
  EXPECT_EQ(row.metadata.at("x"), json::value(1));
  EXPECT_EQ(row.tools.size(), 1U);
}

TEST(DatasetRow, FieldsGetOtherNamesBeforeTheKeysAreLookedUp) {
  const RowKeys keys{.input = "prompt",
                     .label = "label",
                     .renamed = {{"question", "prompt"}, {"reward_model.ground_truth", "label"}}};
  const DatasetRow row =
      read_row(R"({"question": "1+1?", "reward_model": {"ground_truth": "2"}})", keys, "x");
  EXPECT_EQ(row.prompt, json::value("1+1?"));
  EXPECT_EQ(row.label, json::value("2"));
  EXPECT_EQ(row.fields, "the row has reward_model, prompt, label");
  EXPECT_EQ(read_row(R"({"prompt": "p", "label": 3})", keys, "x").prompt, json::value("p"));
  for (const auto& [line, problem] :
       {std::pair{R"({"text": "1+1?"})",
                  "x: no field \"question\" (--rename-columns question=prompt); the row has text"},
        std::pair{
            R"({"question": "a", "prompt": "b"})",
            "x: the row has a field \"prompt\" already (--rename-columns question=prompt)"}}) {
    try {
      read_row(line, keys, "x");
      ADD_FAILURE() << line;
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), problem);
    }
  }
}

TEST(DatasetRow, ThePromptOfAPairMayBeAPathToo) {
  const DatasetRow row =
      read_row(R"({"d": {"q": "why?"}, "chosen": "a", "rejected": "b"})",
               {.input = "d.q", .chosen = "chosen", .rejected = "rejected"}, "x");
  EXPECT_EQ(row.prompt, json::value("why?"));
}

TEST(DatasetRow, AConversationWithItsAnswerHasNoCompletion) {
  const std::string head = R"({"p": [{"role": "user", "content": "q"})";
  const std::string answer = R"(, {"role": "assistant", "content": "a"})";
  const RowKeys keys{.input = "p", .completion = "c"};
  EXPECT_NO_THROW(read_row(head + R"(], "c": "a"})", keys, "x"));
  EXPECT_NO_THROW(read_row(head + answer + "]}", keys, "x"));
  EXPECT_NO_THROW(
      read_row(head + answer + R"(], "c": [{"role": "tool", "content": "4"}]})", keys, "x"));
  for (const char* completion : {R"("b")", R"([{"role": "assistant", "content": "b"}])"}) {
    try {
      read_row(head + answer + R"(], "c": )" + completion + "}", keys, "x");
      ADD_FAILURE() << completion;
    } catch (const ConfigError& error) {
      EXPECT_STREQ(
          error.what(),
          "x: the conversation \"p\" (--input-key) ends with an answer, and \"c\" would be "
          "another; name the field that follows it with --completion-key");
    }
  }
}

TEST(DatasetRow, APathThatLeadsNowhereIsRefusedWithTheFieldsThatAreThere) {
  for (const char* key : {"reward_model.truth", "reward_model.ground_truth.x", "q.0", "answers.7",
                          "answers.x", "reward_model.", ".q", "."}) {
    try {
      label_of(R"({"q": "1", "reward_model": {"ground_truth": "2"}, "answers": ["2"]})", key);
      FAIL() << key;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("a.jsonl, line 1: no field \"" +
                                                   std::string(key) + "\" (--label-key)"));
    }
  }
}

}  // namespace
}  // namespace slime::buffer
