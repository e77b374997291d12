#include "engine/chat/message_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace slime::engine {
namespace {

std::string_view text_member(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

std::string_view role_of(const json::value& message) {
  return text_member(message.get_object(), "role");
}

json::array* calls_of(json::value& message) {
  json::value* calls = message.get_object().if_contains("tool_calls");
  return calls == nullptr ? nullptr : calls->if_array();
}

json::object text_part(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

/// Of content that is text or text parts.
std::string text_of(const json::value& content) {
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  if (const json::array* parts = content.if_array()) {
    for (const json::value& part : *parts) {
      if (!text.empty()) text += ' ';
      text += text_of_part(part).value_or("");
    }
  }
  return text;
}

/// All texts of system messages as one message, the first one.
void merge_system(json::array& messages) {
  const auto is_system = [](const json::value& message) { return role_of(message) == "system"; };
  if (std::ranges::none_of(messages.begin() + 1, messages.end(), is_system)) return;
  std::string text;
  bool has_system = false;
  json::array rest;
  for (json::value& message : messages) {
    if (!is_system(message)) {
      rest.push_back(std::move(message));
      continue;
    }
    if (std::exchange(has_system, true)) text += "\n\n";
    text += text_of(message.get_object()["content"]);
  }
  messages.clear();
  messages.push_back({{"role", "system"}, {"content", text}});
  for (json::value& message : rest) messages.push_back(std::move(message));
}

/// The system message, which is the first one, as the beginning of what the user says first.
void give_system_to_user(json::array& messages) {
  if (role_of(messages.front()) != "system") return;
  std::string text = text_of(messages.front().get_object()["content"]);
  messages.erase(messages.begin());
  const auto user =
      std::ranges::find_if(messages, [](const json::value& m) { return role_of(m) == "user"; });
  if (user == messages.end()) {
    messages.insert(messages.begin(), json::object{{"role", "user"}, {"content", text}});
    return;
  }
  json::value& content = user->get_object()["content"];
  if (json::array* parts = content.if_array()) {
    parts->insert(parts->begin(), text_part(text + "\n\n"));
  } else {
    content = text + "\n\n" + text_of(content);
  }
}

/// A message with text and calls as two.
void split_text_from_calls(json::array& messages) {
  json::array out;
  for (json::value& message : messages) {
    json::object& object = message.get_object();
    if (calls_of(message) == nullptr || text_of(object["content"]).empty()) {
      out.push_back(std::move(message));
      continue;
    }
    json::object text = object;
    text.erase("tool_calls");
    object["content"] = "";
    object.erase("reasoning_content");
    out.push_back(std::move(text));
    out.push_back(std::move(message));
  }
  messages = std::move(out);
}

/// An id of nine letters and digits; another one is replaced by one made of it.
std::string short_id(std::string_view id) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 9;
  if (id.size() == kLength && id.find_first_not_of(kLetters) == std::string_view::npos)
    return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : id) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  std::string out;
  for (std::size_t i = 0; i < kLength; ++i, hash /= kLetters.size())
    out += kLetters[hash % kLetters.size()];
  return out;
}

/// Ids in the order of the conversation; a result has the id of the latest call that had its own.
class CallIdWriter final {
 public:
  explicit CallIdWriter(CallIdForm form) : form_(form) {}

  void write(json::value& message) {
    if (json::value* id = text_of_member(message, "tool_call_id")) {
      const auto found = new_ids_.find(id->get_string());
      *id = found != new_ids_.end() ? found->second : new_id(id->get_string(), "");
    }
    if (json::array* calls = calls_of(message)) {
      for (json::value& call : *calls) write_call(call);
    }
  }

 private:
  static json::value* text_of_member(json::value& object, std::string_view name) {
    json::value* value = object.get_object().if_contains(name);
    return value != nullptr && value->is_string() ? value : nullptr;
  }

  void write_call(json::value& call) {
    const json::value* function = call.get_object().if_contains("function");
    const std::string name(function == nullptr ? std::string_view()
                                               : text_member(function->get_object(), "name"));
    const std::string old(text_member(call.get_object(), "id"));
    const std::string id = new_id(old, name);
    new_ids_[old] = id;
    call.get_object()["id"] = id;
    ++num_calls_;
  }

  /// `name`: the call's; empty for a result that answers no call.
  std::string new_id(std::string_view id, const std::string& name) const {
    if (form_ == CallIdForm::kNineCharacters) return short_id(id);
    const bool is_sampled = id.starts_with("functions.") && id.find(':') != std::string_view::npos;
    if (is_sampled || name.empty()) return std::string(id);
    return fmt::format("functions.{}:{}", name, num_calls_);
  }

  const CallIdForm form_;
  int num_calls_ = 0;
  std::map<std::string, std::string, std::less<>> new_ids_;
};

void fit_content(json::value& message, const TemplateTraits& traits) {
  json::value& content = message.get_object()["content"];
  if (traits.wants_null_beside_calls && calls_of(message) != nullptr && text_of(content).empty()) {
    content = nullptr;
  } else if (!traits.takes_text && content.is_string()) {
    content = json::array{text_part(content.get_string())};
  }
}

}  // namespace

std::optional<std::string_view> text_of_part(const json::value& part) {
  if (part.is_string()) return part.get_string();
  const json::object* object = part.if_object();
  if (object == nullptr) return std::nullopt;
  const std::string_view type = text_member(*object, "type");
  const std::string_view name = type == "refusal" ? "refusal" : "text";
  const bool is_text =
      type == "text" || type == "refusal" || type == "input_text" || type == "output_text";
  const json::value* text = is_text ? object->if_contains(name) : nullptr;
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return text->get_string();
}

json::value joined_parts(const std::vector<std::string_view>& texts, const TemplateTraits& traits) {
  if (traits.takes_parts) {
    json::array parts;
    for (const std::string_view text : texts) parts.push_back(text_part(text));
    return parts;
  }
  std::string joined;
  for (const std::string_view text : texts) {
    if (!joined.empty()) joined += ' ';
    joined += text;
  }
  return json::value(joined);
}

void order_tool_results(json::array& messages) {
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const json::array* calls = calls_of(messages[at]);
    if (calls == nullptr) continue;
    const std::size_t first = at + 1;
    std::size_t end = first;
    while (end < messages.size() && role_of(messages[end]) == "tool") ++end;
    at = end - 1;
    std::map<std::string_view, std::size_t> place_of_call;
    for (const json::value& call : *calls) {
      if (const auto* object = call.if_object())
        place_of_call.emplace(text_member(*object, "id"), place_of_call.size());
    }
    std::set<std::size_t> places;
    for (std::size_t i = first; i < end; ++i) {
      const auto found = place_of_call.find(text_member(messages[i].get_object(), "tool_call_id"));
      if (found != place_of_call.end()) places.insert(found->second);
    }
    if (places.size() != end - first || places.size() != calls->size()) continue;
    std::vector<json::value> ordered(places.size());
    for (std::size_t i = first; i < end; ++i) {
      const auto id = text_member(messages[i].get_object(), "tool_call_id");
      ordered[place_of_call.find(id)->second] = std::move(messages[i]);
    }
    std::ranges::move(ordered, messages.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

void fit_to_template(json::array& messages, const TemplateTraits& traits) {
  if (!traits.takes_later_system || !traits.takes_system) merge_system(messages);
  if (!traits.takes_system) give_system_to_user(messages);
  if (traits.loses_calls_beside_text) split_text_from_calls(messages);
  if (traits.call_ids != CallIdForm::kAny) {
    CallIdWriter ids(traits.call_ids);
    for (json::value& message : messages) ids.write(message);
  }
  for (json::value& message : messages) fit_content(message, traits);
}

}  // namespace slime::engine
