#include "engine/http/anthropic/anthropic_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/tools.h"

namespace slime::engine {
namespace {

bool has_tool(const json::array& tools, std::string_view name) {
  return std::any_of(tools.begin(), tools.end(), [&](const json::value& tool) {
    return tool.at("function").at("name").get_string() == name;
  });
}

void read_tool(const FieldReader& tool, json::array& tools, std::vector<std::string>& warnings) {
  const std::string name = tool.required().text("name", kMostToolNameBytes).value_or("");
  const std::string type = tool.text("type", kMostToolNameBytes).value_or("custom");
  if (type != "custom") {
    warnings.push_back(
        fmt::format("the tool {} of type {} was left out: it has no schema", name, type));
    return;
  }
  if (name.empty()) return tool.expect(!tool.has("name"), "name", "must not be empty");
  if (has_tool(tools, name))
    return tool.note("name", fmt::format("is \"{}\", as that of another tool", name));
  json::object function{{"name", name}};
  if (const auto text = tool.text("description")) function["description"] = *text;
  if (const json::object* schema = tool.required().object("input_schema"))
    function["parameters"] = *schema;
  if (const auto strict = tool.boolean("strict")) function["strict"] = *strict;
  tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
}

void read_choice(const FieldReader& body, AnthropicTools& read) {
  constexpr auto kTypes = std::to_array<std::string_view>({"auto", "any", "tool", "none"});
  const auto choice = body.fields("tool_choice");
  if (!choice) return;
  const auto type = choice->required().one_of("type", kTypes);
  read.parallel = !choice->boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    read.choice.mode = ToolChoice::Mode::kNone;
  } else if (type == "any") {
    read.choice.mode = ToolChoice::Mode::kRequired;
    if (read.chat_tools.empty()) choice->note("type", "is \"any\", and no tool can be called");
  } else if (type == "tool") {
    read.choice.mode = ToolChoice::Mode::kRequired;
    const std::string name = choice->required().text("name", kMostToolNameBytes).value_or("");
    if (name.empty()) return;
    if (!has_tool(read.chat_tools, name))
      choice->note("name", fmt::format("is \"{}\", which is none of the request's tools", name));
    read.choice.names = {name};
  }
}

}  // namespace

AnthropicTools read_anthropic_tools(const FieldReader& body, std::vector<std::string>& warnings) {
  AnthropicTools read;
  const std::vector<FieldReader> tools = body.list("tools");
  if (tools.size() > kMostTools) {
    body.note("tools", fmt::format("may have {} members", kMostTools));
    return read;
  }
  for (const FieldReader& tool : tools) read_tool(tool, read.chat_tools, warnings);
  read_choice(body, read);
  return read;
}

}  // namespace slime::engine
