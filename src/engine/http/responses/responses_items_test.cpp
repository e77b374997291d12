#include "engine/http/responses/responses_items.h"

#include <gtest/gtest.h>

#include "engine/http/responses/reasoning_envelope.h"

namespace slime::engine {
namespace {

struct ReadItems {
  explicit ReadItems(std::string_view text) : body(parse_json(text, "body").get_object()) {
    messages = messages_of_input(FieldReader(body, "", problems), warnings);
  }
  json::object body;
  std::vector<std::string> problems, warnings;
  json::value messages;
};

json::value expected(std::string_view text) { return parse_json(text, "expected"); }

TEST(ResponsesItems, InstructionsAndATextAreTwoMessages) {
  const ReadItems read(R"({"instructions":"Be brief.","input":"Hello"})");
  EXPECT_EQ(read.messages, expected(R"([{"role":"system","content":"Be brief."},
      {"role":"user","content":"Hello"}])"));
}

TEST(ResponsesItems, WhatTheAssistantDidUpToATurnOfAnotherIsOneMessage) {
  const ReadItems read(R"({"input":[
      {"role":"user","content":[{"type":"input_text","text":"list"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],
       "encrypted_content":null},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I "},
       {"type":"output_text","text":"list."}]},
      {"type":"function_call","call_id":"c1","name":"shell","arguments":"{\"a\": 1}"},
      {"type":"custom_tool_call","call_id":"c2","name":"patch","input":"p\n"},
      {"type":"function_call_output","call_id":"c1","output":"a.c"},
      {"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"ok"}]},
      {"type":"function_call","call_id":"c3","name":"read","namespace":"files","arguments":"{}"},
      {"role":"developer","content":"Go on."}]})");
  EXPECT_TRUE(read.problems.empty()) << read.problems[0];
  EXPECT_EQ(read.messages, expected(R"([
      {"role":"user","content":[{"type":"text","text":"list"}]},
      {"role":"assistant","reasoning_content":"hm","content":"I list.","tool_calls":[
       {"id":"c1","type":"function","function":{"name":"shell","arguments":"{\"a\": 1}"}},
       {"id":"c2","type":"function","function":{"name":"patch","arguments":"{\"input\":\"p\\n\"}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"a.c"},
      {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"ok"}]},
      {"role":"assistant","content":null,"tool_calls":[
       {"id":"c3","type":"function","function":{"name":"files__read","arguments":"{}"}}]},
      {"role":"developer","content":"Go on."}])"));
}

TEST(ResponsesItems, TwoMessagesOfTheAssistantStayTwo) {
  const ReadItems read(
      R"({"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]})");
  EXPECT_EQ(read.messages.get_array().size(), 2u);
}

TEST(ResponsesItems, ThoughtsComeBackFromTheirEnvelope) {
  const std::string packed = pack_reasoning("hm");
  const ReadItems read(
      R"({"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],
      "encrypted_content":")" +
      packed + R"("},{"role":"assistant","content":"a"}]})");
  EXPECT_EQ(read.messages.at_pointer("/0/reasoning_content"), "hm");
  const ReadItems foreign(R"({"input":[{"type":"reasoning","summary":[],"encrypted_content":"gAAA"},
      {"role":"assistant","content":"a"}]})");
  EXPECT_TRUE(foreign.problems.empty());
  EXPECT_EQ(foreign.warnings.size(), 1u);
  const ReadItems changed(R"({"input":[{"type":"reasoning","summary":[],
      "encrypted_content":"slime.reasoning.1.!"}]})");
  EXPECT_EQ(
      changed.problems,
      std::vector<std::string>{"input[0].encrypted_content was changed since this server made it"});
}

TEST(ResponsesItems, CallsOfToolsThatClientsRunAreCallsOfThoseNames) {
  const ReadItems read(R"({"input":[
      {"type":"local_shell_call","id":"l1","call_id":"c1","status":"completed",
       "action":{"type":"exec","command":["ls"],"env":{}}},
      {"type":"local_shell_call_output","id":"c1","output":"{\"output\":\"a\"}"},
      {"type":"shell_call","call_id":"c2","action":{"commands":["ls"]}},
      {"type":"shell_call_output","call_id":"c2","output":[{"stdout":"a","stderr":""}]}]})");
  EXPECT_TRUE(read.problems.empty()) << read.problems[0];
  EXPECT_EQ(read.messages.at_pointer("/0/tool_calls/0/function/name"), "local_shell");
  EXPECT_EQ(read.messages.at_pointer("/1/tool_call_id"), "c1");
  EXPECT_EQ(read.messages.at_pointer("/3/content"), R"([{"stdout":"a","stderr":""}])");
}

TEST(ResponsesItems, NamesTheItemThatIsWrong) {
  for (const auto& [body, problem] : {
           std::pair<const char*, const char*>{R"({})", "input must be a text or a list of 1 to"},
           {R"({"input":[]})", "input must be a text or a list of 1 to"},
           {R"({"input":[{"type":"teleport"}]})", "input[0].type is \"teleport\""},
           {R"({"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"x"}]})",
            "input[1].type is \"item_reference\""},
           {R"({"input":[{"role":"robot","content":"a"}]})", "input[0].role must be"},
           {R"({"input":[{"role":"user"}]})", "input[0].content is missing"},
           {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})",
            "input[0].content[0].type is \"input_image\": this engine serves text models"},
           {R"({"input":[{"type":"function_call","name":"f","arguments":"{}"}]})",
            "input[0].call_id is missing"},
           {R"({"input":["a"]})", "input[0] must be an object"},
       }) {
    const ReadItems read(body);
    ASSERT_FALSE(read.problems.empty()) << body;
    EXPECT_TRUE(read.problems[0].starts_with(problem)) << read.problems[0];
  }
}

}  // namespace
}  // namespace slime::engine
