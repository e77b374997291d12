#include "engine/chat/tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/field_reader.h"

namespace slime::engine {
namespace {

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// A custom tool as a function with one text.
json::object shown_custom(const FieldReader& fields, const std::string& name) {
  std::string description = fields.text("description").value_or("");
  if (const auto format = fields.fields("format")) {
    const auto grammar = format->fields("grammar");
    const FieldReader& source = grammar ? *grammar : *format;
    if (const auto definition = source.text("definition")) {
      description += fmt::format("\n\nThe input follows this {} grammar:\n{}",
                                 source.text("syntax").value_or(""), *definition);
    }
  }
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", description},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"input", {{"type", "string"}}}}},
              {"required", json::array{"input"}}}}}}};
}

/// The name under `kind`, or beside the type.
std::optional<std::string> name_in(const FieldReader& fields, const std::string& kind) {
  const auto inner = fields.fields(kind);
  return inner ? inner->required().text("name", kMostToolNameBytes)
               : fields.required().text("name", kMostToolNameBytes);
}

/// Nothing is left out without a word: names of a choice are those of tools.
void check_names(const ToolChoice& choice, const std::vector<std::string>& names,
                 std::vector<std::string>& problems) {
  if (names.empty() && choice.mode == ToolChoice::Mode::kRequired)
    problems.emplace_back("tool_choice asks for a call, and there are no tools");
  for (const std::string& name : choice.names) {
    if (has(names, name)) continue;
    problems.push_back(fmt::format("tool_choice names {}, which is none of the tools{}{}", name,
                                   names.empty() ? "" : ": ", fmt::join(names, ", ")));
  }
}

}  // namespace

bool ChatTools::is_custom(std::string_view name) const { return has(custom, name); }

ChatTools checked_tools(const ChatRequest& request, std::vector<std::string>& problems) {
  ChatTools tools;
  if (request.tools.size() > kMostTools) {
    problems.push_back(fmt::format("tools may have {} members", kMostTools));
    return tools;
  }
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < request.tools.size(); ++i) {
    const std::string place = fmt::format("tools[{}]", i);
    const json::object* tool = request.tools[i].if_object();
    if (tool == nullptr) {
      problems.push_back(place + " must be an object");
      continue;
    }
    const FieldReader fields(*tool, place + ".", problems);
    const std::string type = fields.text("type").value_or("function");
    if (type != "function" && type != "custom") {
      fields.note("type", fmt::format("must be function or custom, not \"{}\"", type));
      continue;
    }
    const auto inner = fields.required().fields(type);
    const auto name = inner ? inner->required().text("name", kMostToolNameBytes) : std::nullopt;
    if (!name) continue;
    if (type == "function" && inner->has("parameters"))
      static_cast<void>(inner->object("parameters"));
    if (name->empty()) inner->note("name", "must not be empty");
    if (!seen.insert(*name).second) inner->note("name", fmt::format("{} stands twice", *name));
    names.push_back(*name);
    const ToolChoice& choice = request.tool_choice;
    if (choice.mode == ToolChoice::Mode::kNone) continue;
    if (!choice.names.empty() && !has(choice.names, *name)) continue;
    if (type == "custom") {
      tools.shown.push_back(shown_custom(*inner, *name));
      tools.custom.push_back(*name);
    } else {
      tools.shown.push_back(*tool);
    }
  }
  check_names(request.tool_choice, names, problems);
  return tools;
}

ToolChoice read_tool_choice(const json::value& choice, std::vector<std::string>& problems) {
  using Mode = ToolChoice::Mode;
  ToolChoice out;
  const auto mode_of = [&](std::string_view word) {
    if (word == "auto") return std::optional(Mode::kAuto);
    if (word == "none") return std::optional(Mode::kNone);
    if (word == "required") return std::optional(Mode::kRequired);
    return std::optional<Mode>();
  };
  const auto wrong = [&] {
    problems.emplace_back(
        "tool_choice must be \"auto\", \"none\", \"required\", or an object of type function, "
        "custom or allowed_tools");
    return out;
  };
  if (choice.is_null()) return out;
  if (const json::string* word = choice.if_string()) {
    const auto mode = mode_of(*word);
    if (!mode) return wrong();
    out.mode = *mode;
    return out;
  }
  if (!choice.is_object()) return wrong();
  const FieldReader fields(choice.get_object(), "tool_choice.", problems);
  const std::string type = fields.text("type").value_or("");
  if (type == "function" || type == "custom") {
    out.mode = Mode::kRequired;
    if (const auto name = name_in(fields, type)) out.names.push_back(*name);
    return out;
  }
  if (type != "allowed_tools") return wrong();
  const auto inner = fields.fields("allowed_tools");
  const FieldReader& allowed = inner ? *inner : fields;
  const auto mode = mode_of(allowed.text("mode").value_or("auto"));
  if (!mode) return wrong();
  out.mode = *mode;
  for (const FieldReader& tool : allowed.required().list("tools")) {
    if (const auto name = name_in(tool, tool.text("type").value_or("function")))
      out.names.push_back(*name);
  }
  if (out.names.empty() && problems.empty())
    problems.emplace_back("tool_choice.tools must have a tool");
  return out;
}

}  // namespace slime::engine
