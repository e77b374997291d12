#include "engine/http/chat_completions_answer.h"

#include <gtest/gtest.h>

#include "engine/chat/chat_model.h"
#include "engine/chat/templates_for_tests.h"
#include "engine/http/fake_engine.h"
#include "engine/http/parse_output.h"

namespace slime::engine {
namespace {

const json::value& at(const json::value& value, std::string_view pointer) {
  return value.at_pointer(pointer);
}

/// A model whose tokens are characters, and an answer of it, token by token.
struct TestAnswer {
  TestAnswer(std::string_view fields, std::string_view output,
             FinishReason::Kind kind = FinishReason::Kind::kStop)
      : tokenizer(make_ascii_tokenizer()),
        model{.name = "ascii",
              .context_length = 4000,
              .vocab_size = 128,
              .sampling_defaults = {},
              .tokenizer = tokenizer.get(),
              .longest_token_bytes = longest_token_bytes(*tokenizer),
              .chat = std::make_shared<const ChatModel>(
                  render_fn(kTextOrObjectArguments), "", tokenizer.get(),
                  ChatParsers{.tool_calls = "qwen25", .reasoning = "qwen3"})} {
    json::object body = parse_json(fields, "fields").as_object();
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", "hi"}}};
    call = parse_chat_completions(body, model);
    answer = make_chat_answer(
        call, {.name = [](WeightVersion version) { return "step-" + std::to_string(version); },
               .current = [] { return WeightVersion{0}; }});
    for (std::string& chunk : answer->first_chunks()) chunks.push_back(parse_json(chunk, "chunk"));
    for (const char byte : output) add({byte}, std::nullopt);
    add({}, FinishReason{.kind = kind});
  }

  void add(std::vector<TokenId> ids, std::optional<FinishReason> finish) {
    GenerateUpdate update;
    update.output_log_probs.assign(ids.size(), -0.5F);
    update.versions = {{version, static_cast<int64_t>(ids.size())}};
    update.output_ids = std::move(ids);
    update.finish = std::move(finish);
    for (std::size_t i = 0; i < call.chat.requests.size(); ++i) answer->add(i, update);
    for (std::string& chunk : answer->next_chunks()) chunks.push_back(parse_json(chunk, "chunk"));
  }

  std::unique_ptr<text::Tokenizer> tokenizer;
  ServedModel model;
  ChatCompletionsCall call;
  std::unique_ptr<OpenAiAnswer> answer;
  std::vector<json::value> chunks;
  WeightVersion version = 7;
};

constexpr const char* kOutput =
    R"(<think>Hm.</think>Look: <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
constexpr const char* kTools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";

TEST(ChatCompletionsAnswer, HasThePartsOfTheMessage) {
  const TestAnswer test(std::string("{") + kTools + "}", kOutput);
  const json::value body = test.answer->whole();
  EXPECT_EQ(at(body, "/choices/0/message/content"), "Look:");
  EXPECT_EQ(at(body, "/choices/0/message/reasoning_content"), "Hm.");
  EXPECT_EQ(at(body, "/choices/0/message/tool_calls/0/type"), "function");
  EXPECT_EQ(at(body, "/choices/0/message/tool_calls/0/function"),
            parse_json(R"({"name": "f", "arguments": "{\"a\": 1}"})", "expected"));
  EXPECT_EQ(at(body, "/choices/0/finish_reason"), "tool_calls");
  EXPECT_EQ(at(body, "/usage/completion_tokens_details/reasoning_tokens"), 3);
  EXPECT_EQ(at(body, "/metadata/weight_version"), "step-7");
}

TEST(ChatCompletionsAnswer, ChunksAddUpToTheWhole) {
  const TestAnswer test(std::string(R"({"stream": true, "logprobs": true, "return_token_ids": true,
      "stream_options": {"include_usage": true}, )") +
                            kTools + "}",
                        kOutput);
  std::string content, thoughts, arguments, ids;
  std::size_t num_names = 0, num_ids = 0, num_log_probs = 0, num_ends = 0;
  EXPECT_EQ(at(test.chunks.at(0), "/choices/0/delta/role"), "assistant");
  EXPECT_FALSE(at(test.chunks.at(0), "/prompt_token_ids").as_array().empty());
  for (const json::value& chunk : test.chunks) {
    EXPECT_TRUE(at(chunk, "/usage").is_null());
    const json::object& choice = at(chunk, "/choices/0").as_object();
    const json::object& delta = choice.at("delta").as_object();
    const auto add = [&](std::string& text, const char* name) {
      if (const json::value* part = delta.if_contains(name)) text += part->as_string();
    };
    add(content, "content");
    add(thoughts, "reasoning_content");
    if (const json::value* calls = delta.if_contains("tool_calls")) {
      const json::object& call = calls->at(0).as_object();
      EXPECT_EQ(call.at("index"), 0);
      num_names += call.contains("id") ? 1 : 0;
      arguments += call.at("function").at("arguments").as_string();
    }
    if (const json::value* token_ids = choice.if_contains("token_ids"))
      num_ids += token_ids->as_array().size();
    if (!choice.at("logprobs").is_null())
      num_log_probs += choice.at("logprobs").at("content").as_array().size();
    if (!choice.at("finish_reason").is_null()) {
      ++num_ends;
      EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
      EXPECT_TRUE(delta.empty());
    }
  }
  EXPECT_EQ(content, "Look:");
  EXPECT_EQ(thoughts, "Hm.");
  EXPECT_EQ(arguments, R"({"a": 1})");
  EXPECT_EQ(num_names, 1u);
  EXPECT_EQ(num_ends, 1u);
  EXPECT_EQ(num_ids, std::string_view(kOutput).size()) << "every token, those of marks too";
  EXPECT_EQ(num_log_probs, num_ids);
  const auto usage = test.answer->usage_chunk();
  ASSERT_TRUE(usage);
  EXPECT_TRUE(at(parse_json(*usage, "usage"), "/choices").as_array().empty());
}

TEST(ChatCompletionsAnswer, CustomToolsAreCalledWithTheirText) {
  const std::string fields =
      R"({"tools": [{"type": "custom", "custom": {"name": "sh"}}], "stream": )";
  const char* output =
      R"(<tool_call>{"name": "sh", "arguments": {"input": "ls \"a\""}}</tool_call>)";
  const TestAnswer whole(fields + "false}", output);
  EXPECT_EQ(at(json::value(whole.answer->whole()), "/choices/0/message/tool_calls/0/custom"),
            parse_json(R"({"name": "sh", "input": "ls \"a\""})", "expected"));
  const TestAnswer stream(fields + "true}", output);
  std::string input;
  for (const json::value& chunk : stream.chunks) {
    if (const auto* calls = at(chunk, "/choices/0/delta").as_object().if_contains("tool_calls"))
      input += at(*calls, "/0/custom/input").as_string();
  }
  EXPECT_EQ(input, R"(ls "a")");
}

TEST(ChatCompletionsAnswer, ThoughtsMayBeLeftOut) {
  const TestAnswer test(R"({"include_reasoning": false})", "<think>Hm.</think>Yes");
  const json::value body = test.answer->whole();
  EXPECT_TRUE(at(body, "/choices/0/message/reasoning_content").is_null());
  EXPECT_EQ(at(body, "/choices/0/message/content"), "Yes");
}

TEST(ChatCompletionsAnswer, OnlyThoughtsAreNoContent) {
  const TestAnswer test("{}", "<think>Hm.", FinishReason::Kind::kLength);
  const json::value body = test.answer->whole();
  EXPECT_TRUE(at(body, "/choices/0/message/content").is_null());
  EXPECT_EQ(at(body, "/choices/0/message/reasoning_content"), "Hm.");
  EXPECT_EQ(at(body, "/choices/0/finish_reason"), "length");
}

TEST(ChatCompletionsAnswer, TellsTheVersionOfEachToken) {
  TestAnswer test(R"({"return_weight_versions": true, "return_meta_info": true})", "ab",
                  FinishReason::Kind::kLength);
  EXPECT_EQ(at(json::value(test.answer->whole()), "/choices/0/weight_versions"),
            parse_json(R"([{"start": 0, "end": 2, "version": "step-7"}])", "expected"));
}

TEST(ChatCompletionsAnswer, TokensMayBeWrittenAsIds) {
  const TestAnswer test(R"({"logprobs": true, "return_tokens_as_token_ids": true})", "a");
  EXPECT_EQ(at(json::value(test.answer->whole()), "/choices/0/logprobs/content/0/token"),
            "token_id:97");
}

TEST(ChatCompletionsAnswer, WithoutParallelCallsTheEngineMayStop) {
  TestAnswer test(std::string(R"({"parallel_tool_calls": false, )") + kTools + "}", "");
  EXPECT_TRUE(test.answer->take_stops().empty());
}

TEST(IgnoredFields, AreNamedAndMisspeltOnesRefused) {
  const TestAnswer test(R"({"a_field_of_next_year": 1, "b\r\nx": 2, "null_field": null})", "a");
  EXPECT_EQ(test.call.ignored_fields, std::vector<std::string>({"a_field_of_next_year", "b\r\nx"}));
  EXPECT_EQ(ignored_fields_header(test.call.ignored_fields), "a_field_of_next_year, ?");
  EXPECT_THROW(TestAnswer(R"({"tempreature": 0})", "a"), ConfigError);
  EXPECT_THROW(TestAnswer(R"({"max_new_tokens": 5})", "a"), ConfigError);
}

TEST(ParseOutput, TakesCallsOutOfAText) {
  const TestAnswer test("{}", "a");
  const json::object body{
      {"text", "Look: <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"},
      {"tools", parse_json(R"([{"type": "function", "function": {"name": "f"}}])", "")}};
  EXPECT_EQ(parse_function_call(body, test.model),
            parse_json(R"({"normal_text": "Look:", "calls": [{"tool_index": 0, "name": "f",
                "parameters": "{}"}]})",
                       "expected"));
  EXPECT_THROW(parse_function_call({{"text", "x"}}, test.model), ConfigError);
}

TEST(ParseOutput, TakesThoughtsOutOfAText) {
  const TestAnswer test("{}", "a");
  for (const char* text : {"<think>Hm.</think>Yes", "Hm.</think>Yes"}) {
    EXPECT_EQ(separate_reasoning({{"text", text}, {"reasoning_parser", "deepseek-r1"}}, test.model),
              parse_json(R"({"reasoning_text": "Hm.", "text": "Yes"})", "expected"));
  }
  EXPECT_THROW(separate_reasoning({{"text", "x"}, {"reasoning_parser", "none such"}}, test.model),
               ConfigError);
}

}  // namespace
}  // namespace slime::engine
