#include "engine/sessions/message_unit.h"

#include <algorithm>
#include <array>

#include "engine/chat/message_forms.h"
#include "text/messages/white_space.h"

namespace slime::engine {
namespace {

constexpr std::string_view kThoughtBegin = "<think>";
constexpr std::string_view kThoughtEnd = "</think>";

/// What is compared in another way, and what an answer has that says nothing.
constexpr auto kKnownMembers = std::to_array<std::string_view>(
    {"role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls",
     "tool_call_id", "function_call", "refusal", "audio", "annotations", "name", "id"});

std::string_view text_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

std::string content_in(const json::object& message) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) return std::string(text_in(message, "refusal"));
  if (content->is_string()) return std::string(content->get_string());
  const json::array* parts = content->if_array();
  if (parts == nullptr) return canonical_json(*content);
  std::string text;
  for (const json::value& part : *parts) {
    if (!text.empty()) text += '\n';
    const auto words = text_of_part(part);
    text += words ? std::string(*words) : canonical_json(part);
  }
  return text;
}

std::string_view reasoning_in(const json::object& message) {
  const std::string_view thoughts = text_in(message, "reasoning_content");
  return thoughts.empty() ? text_in(message, "reasoning") : thoughts;
}

const json::array* calls_in(const json::object& message) {
  const json::value* calls = message.if_contains("tool_calls");
  return calls == nullptr ? nullptr : calls->if_array();
}

/// Name and arguments of a call, whether it is a function's or a custom tool's.
std::pair<std::string_view, std::string> call_in(const json::object& call) {
  const json::value* custom = call.if_contains("custom");
  if (custom != nullptr && custom->is_object()) {
    const json::object input{{"input", text_in(custom->get_object(), "input")}};
    return {text_in(custom->get_object(), "name"), canonical_json(input)};
  }
  const json::value* function = call.if_contains("function");
  if (function == nullptr || !function->is_object()) return {};
  const json::value* arguments = function->get_object().if_contains("arguments");
  return {text_in(function->get_object(), "name"),
          arguments == nullptr ? "{}" : canonical_arguments(*arguments)};
}

/// Members that are neither compared nor known to say nothing.
std::string further_members(const json::object& message) {
  json::object rest;
  for (const auto& [name, value] : message) {
    if (!value.is_null() &&
        std::ranges::find(kKnownMembers, std::string_view(name)) == kKnownMembers.end())
      rest[name] = value;
  }
  return rest.empty() ? std::string() : canonical_json(rest);
}

MessageUnit make_unit(const json::array& messages, std::size_t first, std::size_t end) {
  MessageUnit unit{.first = first, .end = end};
  const std::string_view role = text_in(messages[first].get_object(), "role");
  unit.is_assistant = role == "assistant";
  std::string text, thoughts;
  TextKeyWriter calls, further;
  for (std::size_t i = first; i < end; ++i) {
    const json::object& message = messages[i].get_object();
    if (i > first) text += '\n';
    text += content_in(message);
    thoughts += reasoning_in(message);
    if (const std::string members = further_members(message); !members.empty())
      further.add(members);
    const json::array* list = calls_in(message);
    if (list == nullptr) continue;
    for (const json::value& call : *list) {
      if (!call.is_object()) continue;
      const auto [name, arguments] = call_in(call.get_object());
      calls.add(name).add(arguments);
      unit.call_ids.emplace_back(text_in(call.get_object(), "id"));
      ++unit.num_calls;
    }
  }
  const std::string_view said = text::without_white_space_around(text);
  unit.has_text = !said.empty();
  unit.calls = calls.key();
  unit.words = words_of(said);
  unit.thoughts = thoughts_of(thoughts);
  unit.whole = TextKeyWriter().add(role).add(said).add(unit.calls).add(further.key()).key();
  return unit;
}

}  // namespace

std::vector<MessageUnit> units_of(const json::array& messages, Joining joining) {
  std::vector<MessageUnit> units;
  std::size_t first = 0;
  for (std::size_t i = 1; i <= messages.size(); ++i) {
    if (i < messages.size()) {
      const std::string_view role = text_in(messages[i].get_object(), "role");
      const bool stays_apart =
          role == "tool" || (joining == Joining::kAllButAssistants && role == "assistant");
      if (!stays_apart && role == text_in(messages[first].get_object(), "role")) continue;
    }
    units.push_back(make_unit(messages, first, i));
    first = i;
  }
  return units;
}

json::object joined_message(const json::array& messages, const MessageUnit& unit) {
  json::object joined = messages[unit.first].get_object();
  if (unit.end == unit.first + 1) return joined;
  std::string text;
  json::array calls;
  for (std::size_t i = unit.first; i < unit.end; ++i) {
    const json::object& message = messages[i].get_object();
    const std::string content = content_in(message);
    if (!text.empty() && !content.empty()) text += '\n';
    text += content;
    if (const json::array* list = calls_in(message))
      calls.insert(calls.end(), list->begin(), list->end());
  }
  joined["content"] = text;
  joined.erase("tool_calls");
  if (!calls.empty()) joined["tool_calls"] = std::move(calls);
  return joined;
}

TextKey words_of(std::string_view text) {
  std::string said;
  for (std::size_t at = 0; at < text.size();) {  // without whole thoughts
    const std::size_t begin = text.find(kThoughtBegin, at);
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(kThoughtEnd, begin);
    if (end == std::string_view::npos) {
      said += text.substr(at);
      break;
    }
    said += text.substr(at, begin - at);
    said += ' ';
    at = end + kThoughtEnd.size();
  }
  std::string_view rest = said;  // the prompt may have opened the first one
  if (const std::size_t end = rest.rfind(kThoughtEnd); end != std::string_view::npos)
    rest.remove_prefix(end + kThoughtEnd.size());
  TextKeyWriter key;
  for (std::size_t at = rest.find_first_not_of(text::kWhiteSpace); at != std::string_view::npos;) {
    const std::size_t end = std::min(rest.find_first_of(text::kWhiteSpace, at), rest.size());
    key.add(rest.substr(at, end - at));
    at = rest.find_first_not_of(text::kWhiteSpace, end);
  }
  return key.key();
}

TextKey thoughts_of(std::string_view text) {
  const std::string_view thoughts = text::without_white_space_around(text);
  return thoughts.empty() ? TextKey() : key_of(thoughts);
}

}  // namespace slime::engine
