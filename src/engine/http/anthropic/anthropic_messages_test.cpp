#include "engine/http/anthropic/anthropic_messages.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

struct ReadMessages {
  explicit ReadMessages(std::string_view text) : body(parse_json(text, "body").get_object()) {
    AnthropicConversation read = read_anthropic_messages(FieldReader(body, "", problems));
    messages = std::move(read.messages);
    continues = read.continues_final_message;
  }
  json::object body;
  std::vector<std::string> problems;
  json::value messages;
  bool continues = false;
};

json::value expected(std::string_view text) { return parse_json(text, "expected"); }

TEST(AnthropicMessages, SystemAndTextsAreMessages) {
  const ReadMessages read(R"({"system":[{"type":"text","text":"Be brief.","cache_control":{}}],
      "messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(read.messages, expected(R"([
      {"role":"system","content":[{"type":"text","text":"Be brief."}]},
      {"role":"user","content":"Hi"}])"));
  EXPECT_FALSE(read.continues);
}

TEST(AnthropicMessages, BlocksOfATurnAreOneMessageAndResultsAreMessagesInFront) {
  const ReadMessages read(R"({"messages":[{"role":"user","content":"weather?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
       {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},
       {"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"text","text":"And now?"},
       {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"4"}]},
       {"type":"tool_result","tool_use_id":"toolu_2","content":"no","is_error":true}]}]})");
  EXPECT_TRUE(read.problems.empty()) << read.problems[0];
  EXPECT_EQ(read.messages, expected(R"([{"role":"user","content":"weather?"},
      {"role":"assistant","reasoning_content":"hm","content":"I look.","tool_calls":[
       {"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
      {"role":"tool","tool_call_id":"toolu_1","content":[{"type":"text","text":"4"}]},
      {"role":"tool","tool_call_id":"toolu_2","content":"Error: no"},
      {"role":"user","content":[{"type":"text","text":"And now?"}]}])"));
}

TEST(AnthropicMessages, NeighboursOfOneRoleAreOneMessage) {
  const ReadMessages read(R"({"messages":[{"role":"user","content":"a"},
      {"role":"user","content":[{"type":"text","text":"b"}]},
      {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
      {"role":"user","content":"e"}]})");
  EXPECT_EQ(read.messages, expected(R"([
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":"cd"},{"role":"user","content":"e"}])"));
}

TEST(AnthropicMessages, ALastMessageOfTheAssistantIsContinuedUnlessItHasCalls) {
  const std::string begin = R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",)";
  EXPECT_TRUE(ReadMessages(begin + R"("content":"The answer is"}]})").continues);
  EXPECT_FALSE(
      ReadMessages(begin + R"("content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]})")
          .continues);
  EXPECT_FALSE(ReadMessages(begin + R"("content":[]}]})").continues);
}

TEST(AnthropicMessages, ASystemMessageMayStandInTheMiddle) {
  const ReadMessages read(R"({"messages":[{"role":"user","content":"a"},
      {"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"b"}]})");
  EXPECT_EQ(read.messages.at_pointer("/1/role"), "system");
  EXPECT_EQ(read.messages.get_array().size(), 3u);
}

TEST(AnthropicMessages, DocumentsOfTextAreTheirText) {
  const ReadMessages read(R"({"messages":[{"role":"user","content":[
      {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},
      {"type":"search_result","title":"S","source":"u","content":[{"type":"text","text":"r"}]}]}]})");
  EXPECT_TRUE(read.problems.empty()) << read.problems[0];
  EXPECT_EQ(read.messages.at_pointer("/0/content/0/text"), "T\nD");
  EXPECT_EQ(read.messages.at_pointer("/0/content/1/text"), "S\nu\nr");
}

TEST(AnthropicMessages, NamesTheBlockThatIsWrong) {
  for (
      const auto& [body, problem] : {
          std::pair<const char*, const char*>{R"({"messages":[]})", "messages must be a list of 1"},
          {R"({})", "messages must be a list of 1"},
          {R"({"messages":[{"content":"a"}]})", "messages[0].role is missing"},
          {R"({"messages":[{"role":"user"}]})", "messages[0].content is missing"},
          {R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
           "messages[0].content[0].type is \"image\": this engine serves text models"},
          {R"({"messages":[{"role":"user","content":[{"type":"document",
              "source":{"type":"base64","media_type":"application/pdf","data":"x"}}]}]})",
           "messages[0].content[0].source.type is \"base64\""},
          {R"({"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]}]})",
           "messages[0].content[0].input is missing"},
          {R"({"messages":[{"role":"assistant","content":[{"type":"tool_result"}]}]})",
           "messages[0].content[0].type is \"tool_result\", which does not stand here"},
          {R"({"system":7,"messages":[{"role":"user","content":"a"}]})", "system must be a list"},
      }) {
    const ReadMessages read(body);
    ASSERT_FALSE(read.problems.empty()) << body;
    EXPECT_TRUE(read.problems[0].starts_with(problem)) << read.problems[0];
  }
}

}  // namespace
}  // namespace slime::engine
