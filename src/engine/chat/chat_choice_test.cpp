#include "engine/chat/chat_choice.h"

#include <gtest/gtest.h>

#include "engine/chat/chat_model.h"
#include "engine/chat/templates_for_tests.h"
#include "engine/http/fake_engine.h"

namespace slime::engine {
namespace {

using Kind = text::MessageEvent::Kind;

constexpr const char* kCall = R"(<tool_call>{"name": "f", "arguments": {"a":  1}}</tool_call>)";

/// A model whose tokens are characters.
struct TestModel {
  explicit TestModel(const ChatParsers& parsers = {.tool_calls = "qwen25", .reasoning = "qwen3"})
      : tokenizer(make_ascii_tokenizer()),
        served{.name = "ascii",
               .context_length = 4000,
               .vocab_size = 128,
               .sampling_defaults = {},
               .tokenizer = tokenizer.get(),
               .longest_token_bytes = longest_token_bytes(*tokenizer),
               .chat = std::make_shared<const ChatModel>(render_fn(kTextOrObjectArguments), "",
                                                         tokenizer.get(), parsers)} {}

  std::unique_ptr<text::Tokenizer> tokenizer;
  ServedModel served;
};

ChatRequest request_of(std::string_view messages, bool has_tools = true) {
  ChatRequest request;
  request.messages = parse_json(messages, "messages").as_array();
  if (has_tools)
    request.tools =
        parse_json(R"([{"type": "function", "function": {"name": "f"}}])", "").as_array();
  return request;
}

ChatRequest hello(bool has_tools = true) {
  return request_of(R"([{"role": "user", "content": "hi"}])", has_tools);
}

GenerateUpdate update_of(std::string_view text, std::optional<FinishReason> finish = {}) {
  GenerateUpdate update;
  update.output_ids.assign(text.begin(), text.end());
  update.output_log_probs.assign(text.size(), -0.5F);
  update.finish = std::move(finish);
  return update;
}

constexpr FinishReason::Kind kStop = FinishReason::Kind::kStop;
constexpr FinishReason::Kind kLength = FinishReason::Kind::kLength;

/// The choice of a request once its output has come, a token an update.
ChatChoice choice_of(const TestModel& model, ChatRequest request, std::string_view output,
                     FinishReason::Kind kind = kStop) {
  const ChatCall call = prepare_chat(std::move(request), model.served);
  ChatChoice choice(call.reading, call.requests[0]);
  for (const char byte : output) choice.add(update_of({&byte, 1}));
  choice.add(update_of("", FinishReason{.kind = kind}));
  return choice;
}

TEST(ChatChoice, TakesThoughtsContentAndCallsApart) {
  const TestModel model;
  const ChatChoice choice =
      choice_of(model, hello(), "<think>Hm.</think>I look. " + std::string(kCall));
  EXPECT_EQ(choice.message().reasoning, "Hm.");
  EXPECT_EQ(choice.message().content, "I look.");
  ASSERT_EQ(choice.message().calls.size(), 1u);
  EXPECT_EQ(choice.message().calls[0].name, "f");
  EXPECT_EQ(choice.message().calls[0].arguments, R"({"a":  1})");
  EXPECT_TRUE(choice.message().calls[0].id.starts_with("call_"));
  EXPECT_EQ(choice.finish_word(), "tool_calls");
  EXPECT_EQ(choice.num_reasoning_tokens(), 3);
}

TEST(ChatChoice, EveryTokenStaysWithItsLogProb) {
  const TestModel model;
  const std::string output = "Look: " + std::string(kCall);
  const ChatChoice choice = choice_of(model, hello(), output);
  EXPECT_EQ(choice.tokens().ids.size(), output.size());
  EXPECT_EQ(choice.tokens().log_probs.size(), output.size());
  const text::FedRange call = choice.message().calls.at(0).tokens;
  EXPECT_EQ(output.substr(call.first, call.last - call.first), kCall);
}

TEST(ChatChoice, CallsAreContentWithoutToolsAndWithChoiceNone) {
  const TestModel model;
  EXPECT_EQ(choice_of(model, hello(false), kCall).message().content, kCall);
  ChatRequest none = hello();
  none.tool_choice.mode = ToolChoice::Mode::kNone;
  const ChatChoice choice = choice_of(model, none, kCall);
  EXPECT_EQ(choice.message().content, kCall);
  EXPECT_EQ(choice.finish_word(), "stop");
}

TEST(ChatChoice, WhetherThoughtsAreOpenIsReadFromThePrompt) {
  const TestModel model;
  const auto thoughts_after = [&](const char* prompt_end) {
    ChatRequest request =
        request_of(R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": ")" +
                   std::string(prompt_end) + "\"}]");
    request.continues_final_message = true;
    return choice_of(model, request, "Hm.</think>Yes").message();
  };
  EXPECT_EQ(thoughts_after("<think>\\n").reasoning, "Hm.");
  EXPECT_EQ(thoughts_after("<think>\\n").content, "Yes");
  EXPECT_EQ(thoughts_after("<think>x</think>").reasoning, "");
  EXPECT_EQ(thoughts_after("<think>x</think>").content, "Hm.</think>Yes");
}

TEST(ChatChoice, ThoughtsStayInTheContentWhereTheClientWantsThem) {
  const TestModel model;
  ChatRequest request = hello();
  request.separates_reasoning = false;
  EXPECT_EQ(choice_of(model, request, "<think>Hm.</think>Yes").message().content,
            "<think>Hm.</think>Yes");
}

TEST(ChatChoice, ACallCutByLengthIsToldAndTheReasonStays) {
  const TestModel model;
  const ChatChoice choice =
      choice_of(model, hello(), R"(<tool_call>{"name": "f", "arguments": {"a": )", kLength);
  EXPECT_EQ(choice.finish_word(), "length");
  ASSERT_EQ(choice.message().calls.size(), 1u);
  EXPECT_EQ(choice.message().calls[0].arguments, R"({"a":)");
}

TEST(ChatChoice, WithoutParallelCallsTheFirstOneEndsTheTurn) {
  const TestModel model;
  ChatRequest request = hello();
  request.parallel_tool_calls = false;
  const ChatCall call = prepare_chat(request, model.served);
  ChatChoice choice(call.reading, call.requests[0]);
  choice.add(update_of(kCall));
  EXPECT_TRUE(choice.wants_stop());
  choice.add(update_of(kCall));
  choice.add(update_of("", aborted(FinishReason::Cause::kRequested, "stopped")));
  EXPECT_EQ(choice.message().calls.size(), 1u);
  EXPECT_EQ(choice.finish_word(), "tool_calls");
}

TEST(ChatChoice, IdsOfCallsDiffer) {
  const TestModel model;
  const ChatChoice one = choice_of(model, hello(), std::string(kCall) + kCall);
  const ChatChoice other = choice_of(model, hello(), kCall);
  ASSERT_EQ(one.message().calls.size(), 2u);
  EXPECT_NE(one.message().calls[0].id, one.message().calls[1].id);
  EXPECT_NE(one.message().calls[0].id, other.message().calls[0].id);
}

TEST(ChatPrompt, ShowsTheToolsThatMayBeCalled) {
  const TestModel model;
  const auto prompt = [&](ChatRequest request) {
    const ChatCall call = prepare_chat(std::move(request), model.served);
    return model.tokenizer->decode(call.prompt_ids, false);
  };
  EXPECT_EQ(prompt(hello()), "<user>hi<assistant>");
  ChatRequest open = hello();
  open.adds_generation_prompt = false;
  EXPECT_EQ(prompt(open), "<user>hi");
  ChatRequest cut = hello();
  cut.truncate_prompt_tokens = 11;
  EXPECT_EQ(prompt(cut), "<assistant>");
  ChatRequest given = hello();
  given.input_ids = {{'a', 'b'}};
  EXPECT_EQ(prompt(given), "ab");
}

TEST(ChatPrompt, SpecialTokensAreKeptWhereTheClientTakesThePartsApart) {
  const TestModel model;
  const auto skips = [&](const ChatRequest& request) {
    return prepare_chat(request, model.served).requests[0].sampling.skip_special_tokens;
  };
  EXPECT_FALSE(skips(hello()));
  EXPECT_TRUE(skips(hello(false)));
  ChatRequest whole = hello(false);
  whole.separates_reasoning = false;
  EXPECT_FALSE(skips(whole));
  whole.skip_special_tokens = true;
  EXPECT_TRUE(skips(whole));
}

TEST(ChatPrompt, CopiesHaveSeedsAndNamesOfTheirOwn) {
  const TestModel model;
  ChatRequest request = hello();
  request.n = 2;
  request.engine.rid = "r";
  request.engine.sampling.sampling_seed = 5;
  const ChatCall call = prepare_chat(request, model.served);
  ASSERT_EQ(call.requests.size(), 2u);
  EXPECT_EQ(call.requests[1].rid, "r_1");
  EXPECT_EQ(call.requests[1].sampling.sampling_seed, 6u);
  EXPECT_EQ(call.requests[0].sampling.max_new_tokens,
            4000 - static_cast<int64_t>(call.prompt_ids.size()));
}

TEST(ChatPrompt, RefusesWhatTheTemplateMayNotBeTold) {
  const TestModel model;
  ChatRequest request = hello();
  request.template_options = {{"messages", json::array()}};
  try {
    static_cast<void>(prepare_chat(request, model.served));
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("chat_template_kwargs.messages "));
  }
}

}  // namespace
}  // namespace slime::engine
