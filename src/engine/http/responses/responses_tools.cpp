#include "engine/http/responses/responses_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/tools.h"

namespace slime::engine {
namespace {

constexpr std::string_view kSeparator = "__";

/// Tools that OpenAI runs for its clients.
constexpr auto kHosted = std::to_array<std::string_view>(
    {"web_search", "web_search_preview", "file_search", "image_generation", "mcp",
     "code_interpreter", "computer", "computer_use", "computer_use_preview", "tool_search"});

/// Also of later versions: web_search_2025_08_26.
bool is_hosted(std::string_view type) {
  return std::any_of(kHosted.begin(), kHosted.end(), [&](std::string_view name) {
    return type == name || (type.starts_with(name) && type[name.size()] == '_');
  });
}

constexpr std::string_view kHostedWords =
    "is a tool that OpenAI runs for its clients; this server has none";

}  // namespace

std::string shown_tool_name(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  return fmt::format("{}{}{}", name_space, kSeparator, name);
}

ResponsesTools ResponsesTools::read(const FieldReader& body, std::vector<std::string>& warnings) {
  ResponsesTools read;
  const std::vector<FieldReader> tools = body.list("tools");
  if (tools.size() > kMostTools) {
    body.note("tools", fmt::format("may have {} members", kMostTools));
    return read;
  }
  for (const FieldReader& tool : tools) {
    const std::string type = tool.required().text("type", kMostToolNameBytes).value_or("");
    if (type == "function" || type == "custom") {
      read.add(tool, type, "");
    } else if (type == "namespace") {
      read.add_namespace(tool, warnings);
    } else if (const ClientTool* known = find_client_tool(type)) {
      read.add_shown(tool, {.shown_name = type, .name = type, .client_tool = known},
                     to_chat_tool(*known));
    } else if (is_hosted(type)) {
      warnings.push_back(fmt::format("the tool {} was left out: it {}", type, kHostedWords));
    } else if (!type.empty()) {
      tool.note("type", fmt::format("is \"{}\", not function, custom or namespace", type));
    }
  }
  return read;
}

void ResponsesTools::add_namespace(const FieldReader& tool, std::vector<std::string>& warnings) {
  const std::string name = tool.required().text("name", kMostToolNameBytes).value_or("");
  for (const FieldReader& member : tool.list("tools")) {
    const std::string type = member.required().text("type", kMostToolNameBytes).value_or("");
    if (type == "function" || type == "custom") {
      add(member, type, name);
    } else if (is_hosted(type)) {
      warnings.push_back(fmt::format("the tool {} was left out: it {}", type, kHostedWords));
    } else if (!type.empty()) {
      member.note("type", fmt::format("is \"{}\", not function or custom", type));
    }
  }
}

void ResponsesTools::add(const FieldReader& tool, std::string_view kind,
                         const std::string& name_space) {
  const std::string name = tool.required().text("name", kMostToolNameBytes).value_or("");
  if (name.empty()) return tool.expect(!tool.has("name"), "name", "must not be empty");
  const std::string shown = shown_tool_name(name_space, name);
  json::object inner{{"name", shown}};
  const bool is_custom = kind == "custom";
  if (const auto text = tool.text("description")) inner["description"] = *text;
  if (is_custom) {
    if (const json::object* format = tool.object("format")) inner["format"] = *format;
  } else {
    if (const json::object* parameters = tool.object("parameters"))
      inner["parameters"] = *parameters;
    if (const auto strict = tool.boolean("strict")) inner["strict"] = *strict;
  }
  add_shown(tool,
            {.shown_name = shown, .name = name, .name_space = name_space, .is_custom = is_custom},
            json::object{{"type", kind}, {kind, std::move(inner)}});
}

void ResponsesTools::add_shown(const FieldReader& tool, ResponsesTool read,
                               json::object chat_tool) {
  const auto is_same = [&](const ResponsesTool& other) {
    return other.shown_name == read.shown_name;
  };
  if (std::any_of(tools_.begin(), tools_.end(), is_same))
    return tool.note("name", fmt::format("is \"{}\", as that of another tool", read.shown_name));
  if (tools_.size() == kMostTools)
    return tool.note_object(fmt::format("is one of more than {} tools", kMostTools));
  chat_tools_.push_back(std::move(chat_tool));
  tools_.push_back(std::move(read));
}

const ResponsesTool* ResponsesTools::find(std::string_view name) const {
  for (const ResponsesTool& tool : tools_) {
    if (tool.shown_name == name) return &tool;
  }
  for (const ResponsesTool& tool : tools_) {
    if (!tool.name_space.empty() && tool.name_space + "." + tool.name == name) return &tool;
  }
  return nullptr;
}

std::optional<std::string> ResponsesTools::chosen(const FieldReader& choice) const {
  const std::string name = choice.required().text("name", kMostToolNameBytes).value_or("");
  if (name.empty()) return std::nullopt;
  const std::string shown =
      shown_tool_name(choice.text("namespace", kMostToolNameBytes).value_or(""), name);
  const ResponsesTool* tool = find(shown);
  if (tool != nullptr) return tool->shown_name;
  choice.note("name", fmt::format("is \"{}\", which is none of the request's tools", shown));
  return std::nullopt;
}

/// {"type": "allowed_tools", "mode": "auto" | "required", "tools": [{"type", "name"}, ...]}
void ResponsesTools::read_allowed(const FieldReader& choice, ToolChoice& read) const {
  constexpr auto kModes = std::to_array<std::string_view>({"auto", "required"});
  if (choice.one_of("mode", kModes) == "required") read.mode = ToolChoice::Mode::kRequired;
  for (const FieldReader& allowed : choice.list("tools")) {
    const std::string type = allowed.text("type", kMostToolNameBytes).value_or("");
    if (is_hosted(type)) continue;  // was left out
    if (find_client_tool(type) != nullptr && find(type) != nullptr) {
      read.names.push_back(type);
    } else if (const auto name = chosen(allowed)) {
      read.names.push_back(*name);
    }
  }
  if (read.names.empty()) {
    if (read.mode == ToolChoice::Mode::kRequired)
      choice.note("tools", "has no tool that this server can show to the model");
    read.mode = ToolChoice::Mode::kNone;
  }
}

ToolChoice ResponsesTools::read_choice(const FieldReader& body) const {
  ToolChoice read;
  const json::value* choice = body.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return read;
  if (*choice == "none") {
    read.mode = ToolChoice::Mode::kNone;
  } else if (*choice == "required") {
    read.mode = ToolChoice::Mode::kRequired;
    if (tools_.empty()) body.note("tool_choice", "is \"required\", and no tool can be called");
  } else if (const json::object* object = choice->if_object()) {
    const FieldReader fields = body.inside(*object, "tool_choice");
    const std::string type = fields.required().text("type", kMostToolNameBytes).value_or("");
    if (type == "function" || type == "custom") {
      read.mode = ToolChoice::Mode::kRequired;
      if (const auto name = chosen(fields)) read.names = {*name};
    } else if (find_client_tool(type) != nullptr && find(type) != nullptr) {
      read = {.mode = ToolChoice::Mode::kRequired, .names = {type}};
    } else if (type == "allowed_tools") {
      read_allowed(fields, read);
    } else if (is_hosted(type)) {
      fields.note("type", fmt::format("is \"{}\", which {}", type, kHostedWords));
    } else if (!type.empty()) {
      fields.note("type", fmt::format("is \"{}\", not function, custom or allowed_tools", type));
    }
  } else {
    body.wrong("tool_choice", "must be \"auto\", \"none\", \"required\" or an object with a type");
  }
  return read;
}

}  // namespace slime::engine
