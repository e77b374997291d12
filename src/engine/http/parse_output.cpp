#include "engine/http/parse_output.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/field_reader.h"
#include "engine/chat/chat_model.h"
#include "text/messages/call_ids.h"
#include "text/messages/message_parser.h"

namespace slime::engine {
namespace {

/// The parsers of the request, else the model's. `name`: the field.
const text::CallFormat* call_format(const FieldReader& fields, const ServedModel& model) {
  const auto name = fields.text("tool_call_parser");
  if (!name) return model.chat == nullptr ? nullptr : model.chat->format().calls();
  const auto found = text::find_call_format(*name);
  if (!found) throw ConfigError("tool_call_parser: " + found.error().message);
  return *found;
}

const text::ReasoningFormat* reasoning_format(const FieldReader& fields, const ServedModel& model) {
  const auto name = fields.text("reasoning_parser");
  if (!name) return model.chat == nullptr ? nullptr : model.chat->format().reasoning();
  const auto found = text::find_reasoning_format(*name);
  if (!found) throw ConfigError("reasoning_parser: " + found.error().message);
  return *found;
}

std::string_view name_of(const json::value& tool) {
  const json::object* object = tool.if_object();
  const json::value* function = object == nullptr ? nullptr : object->if_contains("function");
  if (function != nullptr && function->is_object()) object = &function->get_object();
  const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
  return name != nullptr && name->is_string() ? std::string_view(name->get_string())
                                              : std::string_view();
}

/// Thoughts that a prompt has opened: the text has their closing mark and does not begin with the
/// opening one.
text::PromptTail tail_of(const text::ReasoningFormat& format, std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  bool closes = false;
  for (const text::Mark& mark : format.marks) {
    const bool opens = mark.role == text::MarkRole::kThinkOpen;
    if (opens && text.substr(begin).starts_with(mark.spelling)) return text::PromptTail::kMessage;
    if (mark.role == text::MarkRole::kThinkClose)
      closes |= text.find(mark.spelling) != std::string_view::npos;
  }
  return closes ? text::PromptTail::kReasoning : text::PromptTail::kMessage;
}

}  // namespace

json::object parse_function_call(const json::object& body, const ServedModel& model) {
  const FieldReader fields(body, "");
  const std::string text = *fields.required().text("text");
  const json::array& tools = *fields.required().array("tools");
  const text::CallFormat* format = call_format(fields, model);
  if (format == nullptr)
    throw ConfigError("tool_call_parser must be given: the served model has none of its own");
  const text::ToolSchemas schemas(tools);
  const text::Message message =
      text::parse_message(text::MessageFormat(format, nullptr, nullptr),
                          {.tools = &schemas, .make_id = text::make_call_ids(format->ids, 0)}, text,
                          text::OutputEnd::kStop);
  json::array calls;
  for (const text::ToolCall& call : message.calls) {
    const auto* tool = std::ranges::find_if(
        tools, [&](const json::value& each) { return name_of(each) == call.name; });
    const std::int64_t index = tool == tools.end() ? -1 : tool - tools.begin();
    calls.push_back({{"tool_index", index}, {"name", call.name}, {"parameters", call.arguments}});
  }
  return {{"normal_text", message.content}, {"calls", std::move(calls)}};
}

json::object separate_reasoning(const json::object& body, const ServedModel& model) {
  const FieldReader fields(body, "");
  const std::string text = *fields.required().text("text");
  const text::ReasoningFormat* format = reasoning_format(fields, model);
  if (format == nullptr)
    throw ConfigError("reasoning_parser must be given: the served model has none of its own");
  const text::Message message =
      text::parse_message(text::MessageFormat(nullptr, format, nullptr),
                          {.tail = tail_of(*format, text)}, text, text::OutputEnd::kStop);
  return {{"reasoning_text", message.reasoning}, {"text", message.content}};
}

}  // namespace slime::engine
