#include "text/messages/message_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "text/messages/call_ids.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::text {
namespace {

const ToolSchemas& tools() {
  static const ToolSchemas schemas(parse_json(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {
      "text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"},
      "maybe": {"type": ["integer", "null"]}}}}},
    {"name": "get_weather", "input_schema": {"properties": {"city": {"type": "string"}}}}])",
                                              "tools")
                                       .as_array());
  return schemas;
}

struct Parsed {
  Message message;
  std::vector<MessageEvent> events;
  int errors = 0;
};

/// A parser by names, fed with pieces.
struct Case {
  std::string calls;
  std::string reasoning = {};
  OutputEnd end = OutputEnd::kStop;
  PromptTail tail = PromptTail::kMessage;
  bool parallel_calls = true;
  bool stream_reasoning = true;

  Parsed parse(const std::vector<std::string>& pieces) const {
    const CallFormat* call_format = calls.empty() ? nullptr : *find_call_format(calls);
    const ReasoningFormat* reasoning_format =
        reasoning.empty() ? nullptr : *find_reasoning_format(reasoning);
    const MessageFormat format(call_format, reasoning_format, nullptr);
    MessageParser parser(
        format, {.tools = &tools(),
                 .parallel_calls = parallel_calls,
                 .stream_reasoning = stream_reasoning,
                 .tail = tail,
                 .make_id = make_call_ids(call_format ? call_format->ids : CallIds::kOpenAi, 1)});
    Parsed parsed;
    const auto add = [&parsed](const std::vector<MessageEvent>& events) {
      parsed.events.insert(parsed.events.end(), events.begin(), events.end());
    };
    for (const std::string& piece : pieces) add(parser.feed(piece));
    add(parser.finish(end));
    parsed.message.add(parsed.events);
    parsed.errors = parser.num_errors();
    return parsed;
  }
  Message operator()(const std::string& output) const { return parse({output}).message; }
};

std::string arguments_of(const Message& message, std::size_t call = 0) {
  return call < message.calls.size() ? message.calls[call].arguments : "no such call";
}

std::vector<std::string> letters(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char letter : text) pieces.emplace_back(1, letter);
  return pieces;
}

constexpr const char* kCall =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"count\": 1}}\n</tool_call>";

TEST(MessageParser, ACallIsGivenOutWhenItsNameIsKnownAndItsArgumentsAsTheyCome) {
  const MessageFormat format(*find_call_format("qwen25"), nullptr, nullptr);
  MessageParser parser(format, {.tools = &tools(), .make_id = make_call_ids(CallIds::kOpenAi, 1)});
  using Kind = MessageEvent::Kind;
  EXPECT_EQ(parser.feed("Sure!\n<tool_").front().text, "Sure!");
  EXPECT_TRUE(parser.feed("call>\n{\"name\": \"f").empty());
  const auto begun = parser.feed("\", ");
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(begun[0].kind, Kind::kCall);
  EXPECT_EQ(begun[0].name, "f");
  EXPECT_EQ(begun[0].id.size(), 29U);
  const auto first = parser.feed("\"arguments\": {\"te");
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].kind, Kind::kArguments);
  EXPECT_EQ(first[0].text, "{\"te");
  EXPECT_EQ(parser.feed("xt\": \"a\"}").front().text, "xt\": \"a\"}");
  EXPECT_TRUE(parser.feed("}\n").empty());
  EXPECT_EQ(parser.feed("</tool_call>").front().kind, Kind::kCallEnd);
  EXPECT_TRUE(parser.finish(OutputEnd::kStop).empty());
}

TEST(MessageParser, EventsSayWhichTokensTheyAreMadeOf) {
  const Parsed parsed = Case{"qwen25", "qwen3"}.parse(
      {"<think>", "Hm", ".", "</think>", "\n\n", "Sure", "!", "\n", "<tool_call>",
       "\n{\"name\": \"", "f", "\", \"arguments\": ", "{}", "}\n", "</tool_call>"});
  const Message& message = parsed.message;
  EXPECT_EQ(message.reasoning_tokens, (FedRange{1, 3}));
  EXPECT_EQ(message.content_tokens, (FedRange{5, 7}));
  ASSERT_EQ(message.calls.size(), 1U);
  EXPECT_EQ(message.calls[0].tokens, (FedRange{8, 15}));
  const auto arguments =
      std::ranges::find(parsed.events, MessageEvent::Kind::kArguments, &MessageEvent::kind);
  EXPECT_EQ(arguments->tokens, (FedRange{12, 13}));
}

TEST(MessageParser, ATokenThatOnlyBeganACharacterBelongsToThePieceThatHasIt) {
  const Parsed parsed = Case{""}.parse({"a", "", "", "\xe6\x97\xa5"});
  EXPECT_EQ(parsed.message.content_tokens, (FedRange{0, 4}));
  ASSERT_EQ(parsed.events.size(), 2U);
  EXPECT_EQ(parsed.events[1].tokens, (FedRange{1, 4}));
}

TEST(MessageParser, WhereAGrammarWantsAMarkItsSpellingCountsToo) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":1,"content":"[TOOL_CALLS]","special":true}],
          "model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
      "");
  using CallMarks = MessageFormat::CallMarks;
  const auto num_calls = [&](CallMarks marks, const std::vector<TokenId>& first_token) {
    const MessageFormat format(*find_call_format("mistral"), nullptr, tokenizer.get(), marks);
    MessageParser parser(format,
                         {.tools = &tools(), .make_id = make_call_ids(CallIds::kMistral, 1)});
    Message message;
    for (const TokenId id : first_token) message.add(parser.feed(id, ""));
    if (first_token.empty()) {
      for (const char byte : std::string_view("[TOOL_CALLS]"))
        message.add(parser.feed(0, {&byte, 1}));
    }
    message.add(parser.feed(0, R"([{"name": "f", "arguments": {}}])"));
    message.add(parser.finish(OutputEnd::kStop));
    return message.calls.size();
  };
  EXPECT_EQ(num_calls(CallMarks::kTokens, {1}), 1U);
  EXPECT_EQ(num_calls(CallMarks::kTokens, {}), 0U);
  EXPECT_EQ(num_calls(CallMarks::kTokensOrText, {1}), 1U);
  EXPECT_EQ(num_calls(CallMarks::kTokensOrText, {}), 1U);
}

TEST(MessageParser, AMarkThatIsASpecialTokenCountsWhenItWasSampled) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":1,"content":"[TOOL_CALLS]","special":true},
          {"id":2,"content":"[ARGS]","special":true}],
          "model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
      "");
  const MessageFormat format(*find_call_format("mistral"), nullptr, tokenizer.get());
  const auto parse = [&](const std::vector<std::pair<TokenId, std::string>>& tokens) {
    MessageParser parser(format,
                         {.tools = &tools(), .make_id = make_call_ids(CallIds::kMistral, 1)});
    Message message;
    for (const auto& [id, text] : tokens) message.add(parser.feed(id, text));
    message.add(parser.finish(OutputEnd::kStop));
    return message;
  };
  // The text may have its spelling or, where special tokens are not decoded, not.
  for (const auto& [calls, args] : {std::pair{"[TOOL_CALLS]", "[ARGS]"}, std::pair{"", ""}}) {
    const Message message = parse({{1, calls}, {0, "f"}, {2, args}, {0, "{}"}});
    ASSERT_EQ(message.calls.size(), 1U);
    EXPECT_EQ(message.calls[0].name, "f");
    EXPECT_EQ(message.calls[0].id.size(), 9U);
    EXPECT_EQ(message.calls[0].tokens, (FedRange{0, 4}));
  }
  const Message spelled = parse({{0, "[TOOL_"}, {0, "CALLS]f[ARGS]{}"}});
  EXPECT_EQ(spelled.calls.size(), 0U);
  EXPECT_EQ(spelled.content, "[TOOL_CALLS]f[ARGS]{}");
  // Nor does it end a string in which it is spelled, but one in which it is sampled.
  const Message message = parse({{1, ""},
                                 {0, "f"},
                                 {2, ""},
                                 {0, "{\"a\": \"[TOOL_CALLS]"},
                                 {1, ""},
                                 {0, "f"},
                                 {2, ""},
                                 {0, "{}"}});
  EXPECT_EQ(arguments_of(message), "{\"a\": \"[TOOL_CALLS]");
  EXPECT_EQ(arguments_of(message, 1), "{}");
}

TEST(MessageParser, AMarkInsideOfAStringIsTextIfTheStringEndsBehindIt) {
  const std::string in_string =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"</tool_call>\"}}</tool_call> ok";
  EXPECT_EQ(arguments_of(Case{"hermes"}(in_string)), "{\"text\": \"</tool_call>\"}");
  EXPECT_EQ(Case{"hermes"}(in_string).content, "ok");
  // One that never ends was ended by the mark, unless it was cut off.
  const std::string open =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"a</tool_call>\nbye";
  const Parsed stopped = Case{"hermes"}.parse({open});
  EXPECT_EQ(arguments_of(stopped.message), "{\"text\": \"a");
  EXPECT_EQ(stopped.message.content, "bye");
  EXPECT_EQ(stopped.errors, 1);
  EXPECT_EQ(arguments_of(Case{.calls = "hermes", .end = OutputEnd::kCut}(open)),
            "{\"text\": \"a</tool_call>\nbye");
}

TEST(MessageParser, AMarkInsideOfAParameterIsTextIfTheParameterEndsBehindIt) {
  const Message message = Case{"qwen3_coder"}(
      "<tool_call>\n<function=f>\n<parameter=text>\na </function> </tool_call> b\n</parameter>\n"
      "</function>\n</tool_call>");
  EXPECT_EQ(arguments_of(message), R"({"text": "a </function> </tool_call> b"})");
  const Message open = Case{"qwen3_coder"}(
      "<tool_call>\n<function=f>\n<parameter=text>\na\n</function>\n</tool_call>\n"
      "<tool_call>\n<function=f>\n<parameter=count>\n2\n</parameter>\n</function>\n</tool_call>");
  EXPECT_EQ(arguments_of(open), R"({"text": "a"})");
  EXPECT_EQ(arguments_of(open, 1), R"({"count": 2})");
}

TEST(MessageParser, ThoughtsThatAreNeverClosedEndWhereACallBegins) {
  const Case open{.calls = "qwen25", .reasoning = "qwen3", .tail = PromptTail::kReasoning};
  const Message message =
      open(std::string("I could write <tool_call> here.\n\n") + kCall + "\nDone.");
  EXPECT_EQ(message.reasoning, "I could write <tool_call> here.");
  EXPECT_EQ(message.calls.size(), 1U);
  EXPECT_EQ(message.content, "Done.");
  // Thoughts about calls are thoughts.
  EXPECT_EQ(open("A <tool_call> is a mark.").reasoning, "A <tool_call> is a mark.");
  EXPECT_EQ(open.parse({"A <tool_call> is a mark."}).errors, 0);
  EXPECT_EQ(open(std::string("a ") + kCall + " b</think>c").reasoning,
            std::string("a ") + kCall + " b");
}

TEST(MessageParser, ThoughtsComeAsOneDeltaWhereTheyAreNotStreamed) {
  const Case held{.calls = "", .reasoning = "qwen3", .stream_reasoning = false};
  const Parsed parsed = held.parse(letters("<think>\nab\n</think>\n\ncd"));
  ASSERT_GE(parsed.events.size(), 2U);
  EXPECT_EQ(parsed.events[0].text, "ab");
  EXPECT_EQ(parsed.message.content, "cd");
}

TEST(MessageParser, NothingCountsAfterTheFirstCallWhereCallsAreNotParallel) {
  const MessageFormat format(*find_call_format("qwen25"), nullptr, nullptr);
  MessageParser parser(
      format,
      {.tools = &tools(), .parallel_calls = false, .make_id = make_call_ids(CallIds::kOpenAi, 1)});
  parser.feed("<tool_call>{\"name\": \"f\", \"arguments\": {}}");
  EXPECT_FALSE(parser.wants_stop());  // the closing mark belongs to the call
  parser.feed("</tool_call>");
  EXPECT_TRUE(parser.wants_stop());
  EXPECT_TRUE(parser.feed(std::string(kCall) + "Bye").empty());
  EXPECT_TRUE(parser.finish(OutputEnd::kStop).empty());
  EXPECT_EQ(parser.num_calls(), 1);
  // In one piece, too.
  const Case llama{.calls = "llama3", .parallel_calls = false};
  const Parsed parsed = llama.parse({"{\"name\": \"f\", \"parameters\": {}}\n{ \"\"a"});
  EXPECT_EQ(parsed.message.calls.size(), 1U);
  EXPECT_EQ(parsed.errors, 0);
}

TEST(MessageParser, CallsAreCountedWhoseNamesOrArgumentsCannotBeRead) {
  EXPECT_EQ(Case{"qwen25"}.parse({"<tool_call>oh</tool_call>"}).errors, 1);
  EXPECT_EQ(
      Case{"hermes"}.parse({"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"}).errors,
      1);
  EXPECT_EQ(Case{"hermes"}.parse({kCall}).errors, 0);
  const Case cut{.calls = "hermes", .end = OutputEnd::kCut};
  EXPECT_EQ(cut.parse({"<tool_call>{\"name\": \"f\", \"arguments\": {\"a"}).errors, 0);
}

TEST(MessageParser, MoreCallsThanTheLimitAreText) {
  std::string output;
  for (int i = 0; i < kMostCalls + 2; ++i) output += kCall;
  const Message message = Case{"qwen25"}(output);
  EXPECT_EQ(message.calls.size(), static_cast<std::size_t>(kMostCalls));
  EXPECT_EQ(message.content, std::string(kCall) + kCall);
}

TEST(MessageParser, LongerNamesThanTheLimitAreText) {
  const std::string name(kMostNameBytes + 1, 'x');
  for (const std::string& output : {"<tool_call>{\"name\": \"" + name + "\"}</tool_call>",
                                    "<tool_call><function=" + name + "></tool_call>"}) {
    const Message message = Case{"qwen25"}(output);
    EXPECT_TRUE(message.calls.empty());
    EXPECT_EQ(message.content.size(), output.size());
  }
}

TEST(MessageParser, JsonThatNestsDeeperThanTheLimitIsPassedOnAsItIs) {
  const std::string deep = std::string(kMostNesting, '[') + std::string(kMostNesting, ']');
  const Parsed parsed = Case{"hermes"}.parse(
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep + "}}</tool_call>"});
  EXPECT_EQ(arguments_of(parsed.message), "{\"a\": " + deep + "}");
  EXPECT_EQ(parsed.errors, 1);
}

TEST(MessageParser, BareObjectsOfLlamaAreCallsOnlyWithANameAndArguments) {
  const Case llama{"llama3"};
  EXPECT_EQ(llama("{\"name\": \"Bob\", \"age\": 3}").content, "{\"name\": \"Bob\", \"age\": 3}");
  EXPECT_EQ(llama("See {\"name\": \"f\", \"parameters\": {}}").calls.size(), 0U);
  EXPECT_EQ(llama("See <|python_tag|>{\"name\": \"f\", \"parameters\": {}}").content, "See");
  EXPECT_EQ(llama("<|python_tag|>print(1)").content, "<|python_tag|>print(1)");
  EXPECT_EQ(llama.parse({"{\"name\": \"f\", \"parameters\": {}}; {\"a\": 1}"}).errors, 0);
  // Cut off: a call of a tool that there is, or an answer.
  const Case cut{.calls = "llama3", .end = OutputEnd::kCut};
  EXPECT_EQ(cut("{\"name\": \"get_w").content, "");
  EXPECT_EQ(cut("{\"name\": \"Bo").content, "{\"name\": \"Bo");
  EXPECT_EQ(cut("{\"name\": \"get_weather\", \"par").calls.size(), 1U);
}

TEST(MessageParser, ListsOfPythonAreCallsAtTheBeginningOfALine) {
  const Case python{"pythonic"};
  const Message forced =
      python(R"([{"name": "f", "parameters": {}}, {"name": "f", "parameters": {}}])");
  EXPECT_EQ(forced.calls.size(), 2U);
  EXPECT_EQ(forced.content, "");
  EXPECT_EQ(python(R"([{"name": "Bob"}])").content, R"([{"name": "Bob"}])");
  EXPECT_EQ(arguments_of(python("Sure:\n[f(count=2, text='it\\'s')]")),
            R"({"count": 2, "text": "it's"})");
  for (const char* text :
       {"a [f(count=2)]", "[f(2)]", "[f(count=g())]", "[f(count=2), 3]", "[link](f)"}) {
    EXPECT_EQ(python(text).content, text);
    EXPECT_TRUE(python(text).calls.empty()) << text;
  }
}

TEST(MessageParser, ATagWithoutMarksAroundItCountsWhereALineBeginsAndTheToolIsThere) {
  const Case coder{"qwen3_coder"};
  EXPECT_EQ(coder("Hi\n<function=f>\n</function>\n</tool_call>").calls.size(), 1U);
  EXPECT_EQ(coder("Hi <function=f>\n</function>").calls.size(), 0U);
  EXPECT_EQ(coder("<function=other>\n</function>").content, "<function=other>\n</function>");
}

TEST(MessageParser, MessagesOfHarmonyThatHaveNoFormAreContent) {
  const Case harmony{"gpt-oss", "gpt-oss"};
  EXPECT_EQ(harmony("Hello there").content, "Hello there");
  EXPECT_EQ(harmony(" to=functions.f<|channel|>commentary<|message|>{}<|call|>").calls[0].name,
            "f");
  const Case open{.calls = "gpt-oss", .reasoning = "gpt-oss", .tail = PromptTail::kReasoning};
  EXPECT_EQ(open("Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.").reasoning, "Hm.");
}

TEST(MessageParser, FormatsThatOtherServersDescribeAreReadToo) {
  const auto expect_call = [](const char* format, const std::string& output) {
    const Message message = Case{format}("Hi\n" + output + "\nBye");
    EXPECT_EQ(message.content, "Hi\nBye") << format;
    ASSERT_EQ(message.calls.size(), 1U) << format;
    EXPECT_EQ(message.calls[0].name, "f");
    EXPECT_EQ(arguments_of(message), R"({"count": 2})") << format;
  };
  expect_call("hunyuan",
              "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>count</arg_key>\n"
              "<arg_value>2</arg_value>\n</tool_call>\n</tool_calls>");
  expect_call(
      "step3",
      "<\uff5ctool_calls_begin\uff5c>\n<\uff5ctool_call_begin\uff5c>function<\uff5ctool_sep\uff5c>"
      "<steptml:invoke name=\"f\">\n<steptml:parameter name=\"count\">2</steptml:parameter>\n"
      "</steptml:invoke><\uff5ctool_call_end\uff5c>\n<\uff5ctool_calls_end\uff5c>");
  expect_call("interns1",
              "<|action_start|> <|plugin|>\n{\"name\": \"f\", \"parameters\": {\"count\": 2}}"
              "<|action_end|>");
  expect_call("lfm2", "<|tool_call_start|>[f(count=2)]<|tool_call_end|>");
  expect_call(
      "lfm2",
      "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"count\": 2}}]<|tool_call_end|>");
  expect_call("dots",
              "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"count\">2</parameter>\n"
              "</invoke>\n</dots_function_call>");
  expect_call(
      "dots",
      "<dots_function_call>{\"name\": \"f\", \"arguments\": {\"count\": 2}}</dots_function_call>");
}

TEST(MessageParser, AKimiIdWithoutANumberIsNone) {
  const Message message = Case{"kimi_k2"}(
      "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{}<|tool_call_end|>");
  ASSERT_EQ(message.calls.size(), 2U);
  EXPECT_EQ(message.calls[0].id, "functions.f:0");
  EXPECT_EQ(message.calls[1].id, "functions.f:7");
}

TEST(MessageParser, AnObjectThatBreaksAfterItsNameIsPassedOnWithWhatFollowsAsArguments) {
  const std::string output =
      "<tool_call>{\"name\": \"f\", arguments: {count: 1}, null}</tool_call>";
  for (const auto& pieces : {std::vector<std::string>{output}, letters(output)}) {
    const Parsed parsed = Case{"hermes"}.parse(pieces);
    EXPECT_EQ(arguments_of(parsed.message), "arguments: {count: 1}, null}");
    EXPECT_EQ(parsed.errors, 1);
  }
}

/// Marks without end, alone and inside of a call whose string never ends: read again from each of
/// them, 60 KB would take minutes.
TEST(MessageParser, TimeIsLinearInTheOutput) {
  constexpr std::size_t kBytes = 60'000;
  const auto begin = std::chrono::steady_clock::now();
  for (const CallFormat& calls : call_formats()) {
    const MessageFormat format(&calls, *find_reasoning_format("qwen3"), nullptr);
    const std::string call(calls.marks.front().spelling);
    for (const Mark& mark : calls.marks) {
      for (std::string output :
           {std::string(), call + "{\"name\": \"f\", \"arguments\": {\"text\": \""}) {
        while (output.size() < kBytes) output.append(mark.spelling).append("a{");
        for (const PromptTail tail : {PromptTail::kMessage, PromptTail::kReasoning})
          parse_message(format, {.tools = &tools(), .tail = tail}, output, OutputEnd::kStop);
      }
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(MessageParser, TextOnlyIsVerbatimWithoutToolsOrFormats) {
  const std::string text = "  \n<think>a</think> <tool_call>\n\n";
  EXPECT_EQ(Case{""}(text).content, text);
  const MessageFormat format(*find_call_format("qwen25"), nullptr, nullptr);
  EXPECT_EQ(parse_message(format, {}, kCall, OutputEnd::kStop).content, kCall);
  EXPECT_EQ(
      parse_message(format, {.tools = &tools(), .reads_calls = false}, kCall, OutputEnd::kStop)
          .content,
      kCall);
}

TEST(CallIds, AreOfTheFormThatTheFamilyAsksFor) {
  EXPECT_EQ(make_call_ids(CallIds::kKimi, 1, 3)(1, "f", ""), "functions.f:4");
  EXPECT_EQ(make_call_ids(CallIds::kKimi, 1)(0, "f", "functions.f:7"), "functions.f:7");
  EXPECT_EQ(make_call_ids(CallIds::kMistral, 1)(0, "f", "").size(), 9U);
  const auto make = make_call_ids(CallIds::kOpenAi, 1);
  EXPECT_EQ(make(0, "f", "").substr(0, 5), "call_");
  EXPECT_NE(make(0, "f", ""), make(1, "f", ""));
  EXPECT_NE(make(0, "f", ""), make_call_ids(CallIds::kOpenAi, 2)(0, "f", ""));
}

}  // namespace
}  // namespace slime::text
