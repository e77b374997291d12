/// Fields that ask for constrained decoding, over the routes: what the engine gets of each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/http/test_server.h"

namespace slime::engine {
namespace {

using testing::HasSubstr;

constexpr const char* kChatPath = "/v1/chat/completions";

std::string chat_body(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
}

GenerateRequest sent_to(const char* path, const std::string& body) {
  TestServer test("Hi");
  test.post(path, body);
  return test.engine.requests().at(0);
}

TEST(GrammarFields, EachFormBecomesASamplingParameterThatKeepsItsName) {
  struct Case {
    const char* fields;
    std::string SamplingParams::*kind;
    const char* source;
    const char* name;
  };
  const Case cases[] = {
      {R"("response_format":{"type":"json_object"})", &SamplingParams::json_schema,
       R"({"type":"object"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,
          "schema":{"enum":[1]}}})",
       &SamplingParams::json_schema, R"({"enum":[1]})", "response_format.json_schema.schema"},
      {R"("structured_outputs":{"json":{"enum":[1]}})", &SamplingParams::json_schema,
       R"({"enum":[1]})", "structured_outputs.json"},
      {R"("structured_outputs":{"regex":"a+"})", &SamplingParams::regex, "a+",
       "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":["a\"","b"]})", &SamplingParams::ebnf,
       R"(root ::= "a\"" | "b")", "structured_outputs.choice"},
      {R"("guided_grammar":"root ::= \"a\"")", &SamplingParams::ebnf, R"(root ::= "a")",
       "guided_grammar"},
      {R"("guided_json":"{\"enum\":[1]}")", &SamplingParams::json_schema, R"({"enum":[1]})",
       "guided_json"},
      {R"("regex":"a")", &SamplingParams::regex, "a", ""},
      {R"("ebnf":"root ::= \"a\"")", &SamplingParams::ebnf, R"(root ::= "a")", ""},
      {R"("json_schema":{"enum":[1]})", &SamplingParams::json_schema, R"({"enum":[1]})", ""},
  };
  for (const Case& each : cases) {
    for (const char* path : {kChatPath, "/v1/completions"}) {
      const bool is_chat = path == kChatPath;
      const GenerateRequest request =
          sent_to(path, is_chat ? chat_body(each.fields)
                                : R"({"prompt":"x",)" + std::string(each.fields) + "}");
      EXPECT_EQ(request.sampling.*each.kind, each.source) << each.fields;
      EXPECT_EQ(request.grammar_field, each.name) << each.fields;
    }
  }
}

TEST(GrammarFields, EachProtocolHasOneOfItsOwn) {
  const GenerateRequest responses =
      sent_to("/v1/responses", R"({"model":"m","input":"x","text":{"format":{"type":"json_schema",
      "name":"a","schema":{"enum":[1]}}}})");
  EXPECT_EQ(responses.sampling.json_schema, R"({"enum":[1]})");
  EXPECT_EQ(responses.grammar_field, "text.format.schema");
  const GenerateRequest messages = sent_to(
      "/v1/messages", R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}],
      "output_config":{"format":{"type":"json_schema","schema":{"enum":[1]}}}})");
  EXPECT_EQ(messages.sampling.json_schema, R"({"enum":[1]})");
  EXPECT_EQ(messages.grammar_field, "output_config.format.schema");
  const GenerateRequest tokens = sent_to(
      "/inference/v1/generate",
      R"({"token_ids":[65],"sampling_params":{"structured_outputs":{"regex":"a"},"return_free_logprobs":true}})");
  EXPECT_EQ(tokens.sampling.regex, "a");
  EXPECT_TRUE(tokens.return_free_logprobs);
}

TEST(GrammarFields, TwoGrammarsAreRefusedByTheirNames) {
  TestServer test("Hi");
  const std::pair<std::string, const char*> cases[] = {
      {chat_body(R"("regex":"a","ebnf":"root ::= \"a\"")"), "regex, ebnf are 2 grammars"},
      {chat_body(R"("regex":"a","response_format":{"type":"json_object"})"),
       "response_format and regex are two grammars"},
      {chat_body(R"("response_format":{"type":"json_object"},"guided_regex":"a")"),
       "guided_regex and response_format are two grammars"},
      {chat_body(R"("structured_outputs":{"regex":"a","choice":["b"]})"),
       "structured_outputs.choice and structured_outputs.regex"},
      {chat_body(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required",
          "regex":"a")"),
       "tool_choice"},
      {chat_body(R"("structured_outputs":{"jsn":{}})"), "structured_outputs.jsn"},
      {chat_body(R"("response_format":{"type":"json_schema"})"), "response_format.schema"},
      {chat_body(R"("guided_choice":[])"), "guided_choice"},
  };
  for (const auto& [body, words] : cases) {
    const auto response = test.call("POST", kChatPath, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(response.body, HasSubstr(words)) << body;
  }
}

}  // namespace
}  // namespace slime::engine
