#include "engine/chat/tools.h"

#include <gtest/gtest.h>

#include <tuple>

namespace slime::engine {
namespace {

using Mode = ToolChoice::Mode;

constexpr const char* kTools = R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g", "strict": true}},
    {"type": "custom", "custom": {"name": "sh", "description": "Runs it.", "format": {"type":
     "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}}}])";

std::string problem_of(std::string_view tools, std::string_view choice = "null") {
  std::vector<std::string> problems;
  ChatRequest request;
  request.tools = parse_json(tools, "tools").as_array();
  request.tool_choice = read_tool_choice(parse_json(choice, "choice"), problems);
  if (problems.empty()) static_cast<void>(checked_tools(request, problems));
  return problems.empty() ? "" : problems.front();
}

std::vector<std::string> shown(std::string_view choice) {
  std::vector<std::string> problems, names;
  ChatRequest request;
  request.tools = parse_json(kTools, "tools").as_array();
  request.tool_choice = read_tool_choice(parse_json(choice, "choice"), problems);
  const ChatTools tools = checked_tools(request, problems);
  EXPECT_TRUE(problems.empty()) << problems.front();
  for (const json::value& tool : tools.shown)
    names.emplace_back(tool.at("function").at("name").as_string());
  return names;
}

TEST(Tools, TheChoiceSaysWhichAreShown) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(shown("null"), Names({"f", "g", "sh"}));
  EXPECT_EQ(shown(R"("required")"), Names({"f", "g", "sh"}));
  EXPECT_EQ(shown(R"("none")"), Names());
  EXPECT_EQ(shown(R"({"type": "function", "function": {"name": "g"}})"), Names({"g"}));
  EXPECT_EQ(shown(R"({"type": "custom", "custom": {"name": "sh"}})"), Names({"sh"}));
  EXPECT_EQ(shown(R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
      {"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name":
      "sh"}}]}})"),
            Names({"f", "sh"}));
}

TEST(Tools, FunctionsAreShownAsTheClientWroteThem) {
  std::vector<std::string> problems;
  ChatRequest request;
  request.tools = parse_json(kTools, "tools").as_array();
  const ChatTools tools = checked_tools(request, problems);
  EXPECT_EQ(tools.shown[1], request.tools[1]);
  EXPECT_TRUE(tools.is_custom("sh"));
  EXPECT_FALSE(tools.is_custom("f"));
  EXPECT_EQ(tools.shown[2], parse_json(R"({"type": "function", "function": {"name": "sh",
      "description": "Runs it.\n\nThe input follows this lark grammar:\nstart: /.+/",
      "parameters": {"type": "object", "properties": {"input": {"type": "string"}},
      "required": ["input"]}}})",
                                       "expected"));
}

TEST(Tools, ChoicesHaveAModeAndNames) {
  std::vector<std::string> problems;
  const auto choice_of = [&](const char* text) {
    return read_tool_choice(parse_json(text, "choice"), problems);
  };
  EXPECT_EQ(choice_of("null").mode, Mode::kAuto);
  EXPECT_EQ(choice_of(R"("required")").mode, Mode::kRequired);
  const ToolChoice named = choice_of(R"({"type": "function", "function": {"name": "f"}})");
  EXPECT_EQ(named.mode, Mode::kRequired);
  EXPECT_EQ(named.names, std::vector<std::string>({"f"}));
  EXPECT_EQ(choice_of(R"({"type": "function", "name": "f"})").names,
            std::vector<std::string>({"f"}));
  EXPECT_TRUE(problems.empty());
}

TEST(Tools, WhatIsWrongIsNamedWithItsPlace) {
  for (const auto& [tools, choice, problem] : {
           std::tuple<const char*, const char*, const char*>{"[7]", "null", "tools[0] must be"},
           {R"([{"type": "function"}])", "null", "tools[0].function "},
           {R"([{"type": "function", "function": {}}])", "null", "tools[0].function.name "},
           {R"([{"type": "function", "function": {"name": ""}}])", "null",
            "tools[0].function.name must not be empty"},
           {R"([{"type": "function", "function": {"name": "f", "parameters": 7}}])", "null",
            "tools[0].function.parameters "},
           {R"([{"type": "web_search"}])", "null", "tools[0].type must be function or custom"},
           {R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function":
            {"name": "f"}}])",
            "null", "tools[1].function.name f stands twice"},
           {"[]", R"("required")", "tool_choice asks for a call"},
           {kTools, R"({"type": "function", "function": {"name": "fly"}})",
            "tool_choice names fly, which is none of the tools: f, g, sh"},
           {kTools, R"("always")", "tool_choice must be"},
           {kTools, "7", "tool_choice must be"},
           {kTools, R"({"type": "function"})", "tool_choice.name "},
           {kTools, R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}})",
            "tool_choice.allowed_tools.tools is missing"},
       }) {
    EXPECT_TRUE(problem_of(tools, choice).starts_with(problem))
        << tools << choice << " -> " << problem_of(tools, choice);
  }
}

}  // namespace
}  // namespace slime::engine
