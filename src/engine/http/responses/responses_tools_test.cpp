#include "engine/http/responses/responses_tools.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

using Mode = ToolChoice::Mode;

struct ReadResponseTools {
  explicit ReadResponseTools(std::string_view text) : body(parse_json(text, "body").get_object()) {
    const FieldReader fields(body, "", problems);
    tools = ResponsesTools::read(fields, warnings);
    choice = tools.read_choice(fields);
  }
  json::object body;
  std::vector<std::string> problems, warnings;
  ResponsesTools tools;
  ToolChoice choice;
};

TEST(ResponsesTools, FunctionsCustomToolsAndNamespacesAreChatTools) {
  const ReadResponseTools read(
      R"({"tools":[{"type":"function","name":"f","description":"d","strict":false,
      "parameters":{"type":"object"}},{"type":"custom","name":"p","format":{"type":"text"}},
      {"type":"namespace","name":"n","tools":[{"type":"function","name":"r"}]}]})");
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(json::value(read.tools.chat_tools()), parse_json(R"([
      {"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},
      "strict":false}},{"type":"custom","custom":{"name":"p","format":{"type":"text"}}},
      {"type":"function","function":{"name":"n__r"}}])",
                                                             "expected"));
  ASSERT_NE(read.tools.find("n.r"), nullptr);
  EXPECT_EQ(read.tools.find("n.r")->name_space, "n");
}

TEST(ResponsesTools, ToolsOfOpenAisHostsAreLeftOutWithAWarning) {
  const ReadResponseTools read(
      R"({"tools":[{"type":"web_search"},{"type":"function","name":"f"}]})");
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(read.tools.chat_tools().size(), 1u);
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_TRUE(read.warnings[0].starts_with("the tool web_search was left out"));
}

TEST(ResponsesTools, ReadsEachFormOfTheChoice) {
  const std::string tools = R"("tools":[{"type":"web_search"},{"type":"function","name":"f"},
      {"type":"namespace","name":"n","tools":[{"type":"custom","name":"c"}]}])";
  const auto choice = [&](const std::string& value) {
    const ReadResponseTools read("{" + tools + ",\"tool_choice\":" + value + "}");
    EXPECT_TRUE(read.problems.empty()) << value << ": " << read.problems[0];
    return read.choice;
  };
  EXPECT_EQ(choice("\"auto\"").mode, Mode::kAuto);
  EXPECT_EQ(choice("\"none\"").mode, Mode::kNone);
  EXPECT_EQ(choice("\"required\"").mode, Mode::kRequired);
  EXPECT_EQ(choice(R"({"type":"function","name":"f"})").names, std::vector<std::string>{"f"});
  EXPECT_EQ(choice(R"({"type":"custom","namespace":"n","name":"c"})").names,
            std::vector<std::string>{"n__c"});
  const ToolChoice allowed = choice(R"({"type":"allowed_tools","mode":"required","tools":[
      {"type":"function","name":"f"},{"type":"web_search"}]})");
  EXPECT_EQ(allowed.mode, Mode::kRequired);
  EXPECT_EQ(allowed.names, std::vector<std::string>{"f"});
}

TEST(ResponsesTools, NamesWhatIsWrong) {
  for (const auto& [body, problem] : {
           std::pair<const char*, const char*>{R"({"tools":[{"type":"function"}]})",
                                               "tools[0].name is missing"},
           {R"({"tools":[{"type":"teleport"}]})", "tools[0].type is \"teleport\""},
           {R"({"tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]})",
            "tools[1].name is \"f\", as that of another tool"},
           {R"({"tools":7})", "tools must be a list"},
           {R"({"tool_choice":"required"})", "tool_choice is \"required\""},
           {R"({"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}})",
            "tool_choice.type is \"web_search\""},
           {R"({"tool_choice":{"type":"function","name":"g"}})", "tool_choice.name is \"g\""},
           {R"({"tool_choice":3})", "tool_choice must be"},
       }) {
    const ReadResponseTools read(body);
    ASSERT_EQ(read.problems.size(), 1u) << body;
    EXPECT_TRUE(read.problems[0].starts_with(problem)) << read.problems[0];
  }
}

}  // namespace
}  // namespace slime::engine
