#include "engine/chat/messages.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "core/field_reader.h"
#include "engine/chat/message_forms.h"
#include "engine/chat/tool_arguments.h"

namespace slime::engine {
namespace {

constexpr std::size_t kMostRoleBytes = 128;
constexpr std::size_t kMostIdBytes = 4096;

/// One message as its own reader: problems begin with "messages[3].".
class MessageInput final {
 public:
  MessageInput(const json::object& message, std::size_t place, const TemplateTraits& traits,
               std::vector<std::string>& problems)
      : message_(message),
        prefix_(fmt::format("messages[{}].", place)),
        traits_(traits),
        problems_(problems),
        fields_(message, prefix_, problems) {}

  json::object normalised() {
    json::object out;
    const std::string role = read_role();
    out["role"] = role;
    out["content"] = read_content(role);
    if (auto thoughts = read_reasoning()) out["reasoning_content"] = std::move(*thoughts);
    json::array calls = read_calls();
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
    if (auto id = fields_.text("tool_call_id", kMostIdBytes)) out["tool_call_id"] = *id;
    for (const auto& [key, value] : message_) {
      if (!value.is_null() && !is_read(key)) out.emplace(key, value);
    }
    return out;
  }

 private:
  /// Members that are read above, and those of an answer that say nothing to a template.
  static bool is_read(std::string_view key) {
    for (const std::string_view name :
         {"role", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls",
          "tool_call_id", "function_call", "refusal", "audio", "annotations"}) {
      if (key == name) return true;
    }
    return false;
  }

  std::string read_role() {
    std::string role = fields_.required().text("role", kMostRoleBytes).value_or("");
    if (role == "developer" && !traits_.knows_developer) role = "system";
    if (role == "function") role = "tool";
    return role;
  }

  json::value read_content(std::string_view role) {
    const json::value* content = fields_.find("content");
    if (content == nullptr) {
      if (const auto refusal = fields_.text("refusal")) return json::value(*refusal);
      if (role == "user") fields_.note("content", "must be given");
      return "";
    }
    if (content->is_string()) return *content;
    if (const json::array* parts = content->if_array()) return read_parts(*parts);
    fields_.note("content", "must be text, or a list of text parts");
    return "";
  }

  json::value read_parts(const json::array& parts) {
    std::vector<std::string_view> texts;
    for (const json::value& part : parts) {
      const auto text = text_of_part(part);
      if (!text) {
        fields_.note("content",
                     "parts must be {\"type\": \"text\", \"text\": ...}: this engine serves text "
                     "models");
        return "";
      }
      texts.push_back(*text);
    }
    return joined_parts(texts, traits_);
  }

  std::optional<std::string> read_reasoning() {
    for (const char* name : {"reasoning_content", "reasoning"}) {
      const json::value* thoughts = fields_.find(name);
      if (thoughts == nullptr) continue;
      if (!thoughts->is_string()) {
        fields_.note(name, "must be text");
      } else if (!thoughts->get_string().empty()) {
        return std::string(thoughts->get_string());
      }
    }
    return std::nullopt;
  }

  json::array read_calls() {
    json::array calls;
    if (const json::object* old = fields_.object("function_call")) {
      calls.push_back(
          {{"type", "function"}, {"function", read_function(*old, prefix_ + "function_call.")}});
    }
    const json::array* list = fields_.array("tool_calls");
    if (list == nullptr) return calls;
    if (list->size() > kMostCallsInMessage) {
      fields_.note("tool_calls", fmt::format("may have {} members", kMostCallsInMessage));
      return calls;
    }
    for (std::size_t i = 0; i < list->size(); ++i)
      calls.push_back(read_call((*list)[i], fmt::format("{}tool_calls[{}].", prefix_, i)));
    return calls;
  }

  json::object read_call(const json::value& value, const std::string& prefix) {
    const json::object* call = value.if_object();
    if (call == nullptr) {
      problems_.push_back(prefix.substr(0, prefix.size() - 1) + " must be an object");
      return {};
    }
    const FieldReader fields(*call, prefix, problems_);
    json::object out;
    if (auto id = fields.text("id", kMostIdBytes)) out["id"] = *id;
    out["type"] = "function";
    if (const json::object* custom = fields.object("custom")) {
      const FieldReader reader(*custom, prefix + "custom.", problems_);
      json::object function{{"name", reader.required().text("name").value_or("")}};
      const json::object input{{"input", reader.required().text("input").value_or("")}};
      function["arguments"] = arguments_for(json::value(input), traits_);
      out["function"] = std::move(function);
    } else if (const json::object* function = fields.required().object("function")) {
      out["function"] = read_function(*function, prefix + "function.");
    }
    return out;
  }

  json::object read_function(const json::object& function, const std::string& prefix) {
    const FieldReader fields(function, prefix, problems_);
    json::object out{{"name", fields.required().text("name").value_or("")}};
    const json::value* arguments = fields.find("arguments");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object()) {
      fields.note("arguments", "must be JSON as text, or an object");
      return out;
    }
    out["arguments"] =
        arguments_for(arguments == nullptr ? json::value(nullptr) : *arguments, traits_);
    return out;
  }

  const json::object& message_;
  const std::string prefix_;
  const TemplateTraits& traits_;
  std::vector<std::string>& problems_;
  const FieldReader fields_;
};

}  // namespace

json::array normalised_messages(const json::array& messages, const TemplateTraits& traits,
                                std::vector<std::string>& problems) {
  json::array out;
  if (messages.empty() || messages.size() > kMostMessages) {
    problems.push_back(fmt::format("messages must be a list of 1 to {} messages", kMostMessages));
    return out;
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (problems.size() >= FieldReader::kMostProblems) return out;
    if (const json::object* message = messages[i].if_object()) {
      out.push_back(MessageInput(*message, i, traits, problems).normalised());
    } else {
      problems.push_back(fmt::format("messages[{}] must be an object with a role", i));
    }
  }
  if (!problems.empty()) return out;
  order_tool_results(out);
  fit_to_template(out, traits);
  return out;
}

int num_calls_in(const json::array& messages) {
  std::size_t count = 0;
  for (const json::value& message : messages) {
    const json::object* object = message.if_object();
    const json::value* calls = object == nullptr ? nullptr : object->if_contains("tool_calls");
    if (calls != nullptr && calls->is_array()) count += calls->get_array().size();
  }
  return static_cast<int>(count);
}

}  // namespace slime::engine
