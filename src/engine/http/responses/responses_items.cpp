#include "engine/http/responses/responses_items.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/chat/tools.h"
#include "engine/http/responses/client_tools.h"
#include "engine/http/responses/reasoning_envelope.h"
#include "engine/http/responses/responses_tools.h"

namespace slime::engine {
namespace {

/// Types of parts whose text is a part of the prompt, and the member that has it.
constexpr auto kTextParts =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"input_text", "text"},
                                                                  {"output_text", "text"},
                                                                  {"text", "text"},
                                                                  {"reasoning_text", "text"},
                                                                  {"summary_text", "text"},
                                                                  {"refusal", "refusal"}});

/// The text of a part; a problem where it has none.
std::optional<std::string> part_text(const FieldReader& part) {
  const std::string type = part.text("type", kMostToolNameBytes).value_or("text");
  for (const auto& [name, member] : kTextParts) {
    if (type == name) return part.required().text(member);
  }
  part.note("type",
            fmt::format("is \"{}\": this engine serves text models, which take input_text", type));
  return std::nullopt;
}

/// A string, or a list of parts, as the content of a chat message; null where there is none.
json::value read_content(const FieldReader& item, std::string_view name) {
  const json::value* content = item.find(name);
  if (content == nullptr || content->is_string())
    return content == nullptr ? json::value(nullptr) : *content;
  json::array parts;
  for (const FieldReader& part : item.list(name)) {
    if (auto text = part_text(part))
      parts.push_back(json::object{{"type", "text"}, {"text", *std::move(text)}});
  }
  return parts;
}

/// The same as one text: its parts have no borders in what the assistant wrote.
std::string read_text(const FieldReader& item, std::string_view name) {
  const json::value content = read_content(item, name);
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  if (const json::array* parts = content.if_array()) {
    for (const json::value& part : *parts) text += part.at("text").get_string();
  }
  return text;
}

class ItemReader {
 public:
  explicit ItemReader(std::vector<std::string>& warnings) : warnings_(warnings) {}

  void read(const FieldReader& item);
  void add(json::object message) {
    end_assistant();
    messages_.push_back(std::move(message));
  }
  json::array finish() {
    end_assistant();
    return std::move(messages_);
  }

 private:
  /// The message of the assistant that is being put together.
  struct Assistant {
    bool has_begun = false;
    bool has_message = false;  // a message item
    std::string reasoning, content;
    json::array calls;
  };

  void read_message(const FieldReader& item);
  void read_reasoning(const FieldReader& item);
  void add_call(const FieldReader& item, const std::string& name, std::string arguments);
  void add_output(const FieldReader& item, json::value content);
  void end_assistant();

  std::vector<std::string>& warnings_;
  json::array messages_;
  Assistant assistant_;
};

void ItemReader::end_assistant() {
  Assistant ended = std::exchange(assistant_, {});
  if (!ended.has_begun) return;
  json::object message{{"role", "assistant"}};
  if (!ended.reasoning.empty()) message["reasoning_content"] = ended.reasoning;
  const bool is_call_alone = ended.content.empty() && !ended.calls.empty();
  message["content"] = is_call_alone ? json::value(nullptr) : json::value(ended.content);
  if (!ended.calls.empty()) message["tool_calls"] = std::move(ended.calls);
  messages_.push_back(std::move(message));
}

void ItemReader::read_message(const FieldReader& item) {
  constexpr auto kRoles =
      std::to_array<std::string_view>({"user", "assistant", "system", "developer"});
  const auto role = item.required().one_of("role", kRoles);
  if (!role) return;
  if (*role != "assistant") {
    json::value content = read_content(item, "content");
    if (content.is_null()) item.note("content", "is missing");
    return add({{"role", *role}, {"content", std::move(content)}});
  }
  if (assistant_.has_message && assistant_.calls.empty()) end_assistant();
  assistant_.has_begun = assistant_.has_message = true;
  assistant_.content += read_text(item, "content");
}

/// The thoughts in the most exact form that there is.
void ItemReader::read_reasoning(const FieldReader& item) {
  std::string text = read_text(item, "content");
  const std::string packed = item.text("encrypted_content").value_or("");
  if (text.empty() && is_packed_reasoning(packed)) {
    if (auto unpacked = unpack_reasoning(packed)) {
      text = *std::move(unpacked);
    } else {
      item.note("encrypted_content", "was changed since this server made it");
    }
  }
  if (text.empty()) text = read_text(item, "summary");
  if (text.empty() && !packed.empty() && !is_packed_reasoning(packed))
    warnings_.emplace_back("encrypted reasoning of another server was left out");
  assistant_.has_begun = true;
  if (!assistant_.reasoning.empty() && !text.empty()) assistant_.reasoning += '\n';
  assistant_.reasoning += text;
}

void ItemReader::add_call(const FieldReader& item, const std::string& name, std::string arguments) {
  const bool has_call_id = item.has("call_id") || !item.has("id");
  const auto id = item.required().text(has_call_id ? "call_id" : "id", kMostToolNameBytes);
  assistant_.has_begun = true;
  assistant_.calls.push_back(
      json::object{{"id", id.value_or("")},
                   {"type", "function"},
                   {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void ItemReader::add_output(const FieldReader& item, json::value content) {
  const bool has_call_id = item.has("call_id") || !item.has("id");
  const auto id = item.required().text(has_call_id ? "call_id" : "id", kMostToolNameBytes);
  if (content.is_null()) content = "";
  add({{"role", "tool"}, {"tool_call_id", id.value_or("")}, {"content", std::move(content)}});
}

void ItemReader::read(const FieldReader& item) {
  const std::string type = item.text("type", kMostToolNameBytes).value_or("message");
  if (type == "message") {
    read_message(item);
  } else if (type == "reasoning") {
    read_reasoning(item);
  } else if (type == "function_call") {
    const std::string name =
        shown_tool_name(item.text("namespace", kMostToolNameBytes).value_or(""),
                        item.required().text("name").value_or(""));
    const json::value* arguments = item.find("arguments");
    const bool is_object = arguments != nullptr && arguments->is_object();
    add_call(item, name,
             is_object ? json_text(*arguments) : item.required().text("arguments").value_or(""));
  } else if (type == "custom_tool_call") {
    const std::string name =
        shown_tool_name(item.text("namespace", kMostToolNameBytes).value_or(""),
                        item.required().text("name").value_or(""));
    const json::object arguments{{"input", item.required().text("input").value_or("")}};
    add_call(item, name, json_text(arguments));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    add_output(item, read_content(item, "output"));
  } else if (const ClientTool* tool = find_client_tool_of_call(type)) {
    const json::object* action = item.required().object(tool->member);
    add_call(item, std::string(tool->type), action == nullptr ? "{}" : json_text(*action));
  } else if (find_client_tool_of_output(type) != nullptr) {
    const json::value* output = item.find("output");
    const bool is_list = output != nullptr && !output->is_string();
    add_output(item, is_list ? json::value(json_text(*output)) : read_content(item, "output"));
  } else if (type == "item_reference" || type == "compaction") {
    item.note("type",
              fmt::format("is \"{}\": this server keeps no items; send their content", type));
  } else {
    item.note("type", fmt::format("is \"{}\", which is no item that this server knows: message, "
                                  "reasoning, function_call, custom_tool_call, local_shell_call, "
                                  "shell_call, apply_patch_call and their outputs",
                                  type));
  }
}

}  // namespace

json::array messages_of_input(const FieldReader& body, std::vector<std::string>& warnings) {
  ItemReader reader(warnings);
  if (const auto instructions = body.text("instructions"); instructions && !instructions->empty())
    reader.add({{"role", "system"}, {"content", *instructions}});
  const json::value* input = body.find("input");
  if (input != nullptr && input->is_string()) {
    reader.add({{"role", "user"}, {"content", *input}});
    return reader.finish();
  }
  const json::array* items = input == nullptr ? nullptr : input->if_array();
  if (items == nullptr || items->empty() || items->size() > kMostItems) {
    body.note("input", fmt::format("must be a text or a list of 1 to {} items", kMostItems));
    return {};
  }
  for (const FieldReader& item : body.list("input")) reader.read(item);
  return reader.finish();
}

}  // namespace slime::engine
