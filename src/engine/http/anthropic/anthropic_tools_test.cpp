#include "engine/http/anthropic/anthropic_tools.h"

#include <gtest/gtest.h>

namespace slime::engine {
namespace {

using Mode = ToolChoice::Mode;

struct ReadTools {
  explicit ReadTools(std::string_view text) : body(parse_json(text, "body").get_object()) {
    tools = read_anthropic_tools(FieldReader(body, "", problems), warnings);
  }
  json::object body;
  std::vector<std::string> problems, warnings;
  AnthropicTools tools;
};

TEST(AnthropicTools, AreFunctionsAndThoseWithoutSchemaAreLeftOut) {
  const ReadTools read(R"({"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},
      {"type":"web_search_20250305","name":"web_search"}],
      "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}})");
  EXPECT_TRUE(read.problems.empty());
  EXPECT_EQ(json::value(read.tools.chat_tools),
            parse_json(R"([{"type":"function","function":{"name":"f","description":"d",
                "parameters":{"type":"object"}}}])",
                       "expected"));
  EXPECT_EQ(read.tools.choice.mode, Mode::kRequired);
  EXPECT_EQ(read.tools.choice.names, std::vector<std::string>{"f"});
  EXPECT_FALSE(read.tools.parallel);
  EXPECT_EQ(read.warnings.size(), 1u);
}

TEST(AnthropicTools, NamesWhatIsWrong) {
  for (const auto& [body, problem] : {
           std::pair<const char*, const char*>{R"({"tools":[{"name":"f"}]})",
                                               "tools[0].input_schema is missing"},
           {R"({"tools":[{"input_schema":{}}]})", "tools[0].name is missing"},
           {R"({"tool_choice":{"type":"any"}})", "tool_choice.type is \"any\", and no tool"},
           {R"({"tool_choice":{"type":"tool","name":"fly"}})", "tool_choice.name is \"fly\""},
           {R"({"tools":[{"type":"bash_20250124","name":"bash"}],
               "tool_choice":{"type":"tool","name":"bash"}})",
            "tool_choice.name is \"bash\""},
       }) {
    const ReadTools read(body);
    ASSERT_EQ(read.problems.size(), 1u) << body;
    EXPECT_TRUE(read.problems[0].starts_with(problem)) << read.problems[0];
  }
}

}  // namespace
}  // namespace slime::engine
