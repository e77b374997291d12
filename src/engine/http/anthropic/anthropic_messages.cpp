#include "engine/http/anthropic/anthropic_messages.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "engine/chat/tools.h"
#include "engine/http/anthropic/anthropic_blocks.h"

namespace slime::engine {
namespace {

json::object text_part(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

std::string string_of(const json::value& text) { return std::string(text.get_string()); }

/// Results of tools that failed begin so.
json::value marked_as_error(json::value content) {
  constexpr std::string_view kError = "Error: ";
  json::array* parts = content.if_array();
  if (parts == nullptr) return json::value(std::string(kError) + string_of(content));
  if (parts->empty()) parts->push_back(text_part({}));
  json::value& text = parts->front().at("text");
  text = std::string(kError) + string_of(text);
  return content;
}

class MessageReader {
 public:
  void add_system(json::value content) {
    end();
    messages_.push_back(json::object{{"role", "system"}, {"content", std::move(content)}});
  }
  void read(const FieldReader& message);
  AnthropicConversation finish();

 private:
  void read_user(const FieldReader& message);
  void read_assistant(const FieldReader& message);
  void read_assistant_block(const FieldReader& block);
  void add_tool_result(const FieldReader& block);
  void add_user(json::value content);
  void end_user();
  void end_assistant();
  void end() {
    end_user();
    end_assistant();
  }

  json::array messages_;
  // The message that is being put together, of one role.
  bool has_user_ = false, has_assistant_ = false;
  json::value user_content_;  // a text or a list of parts
  std::string reasoning_, content_;
  json::array calls_;
};

void MessageReader::end_user() {
  if (!std::exchange(has_user_, false)) return;
  messages_.push_back(
      json::object{{"role", "user"}, {"content", std::exchange(user_content_, nullptr)}});
}

void MessageReader::end_assistant() {
  if (!std::exchange(has_assistant_, false)) return;
  json::object message{{"role", "assistant"}};
  if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
  const bool is_call_alone = content_.empty() && !calls_.empty();
  message["content"] = is_call_alone ? json::value(nullptr) : json::value(content_);
  if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, {});
  content_.clear();
  messages_.push_back(std::move(message));
}

void MessageReader::add_user(json::value content) {
  end_assistant();
  if (!std::exchange(has_user_, true)) {
    user_content_ = std::move(content);
    return;
  }
  json::array parts;
  for (json::value* each : {&user_content_, &content}) {
    if (json::array* list = each->if_array()) {
      for (json::value& part : *list) parts.push_back(std::move(part));
    } else {
      parts.push_back(text_part(string_of(*each)));
    }
  }
  user_content_ = std::move(parts);
}

void MessageReader::add_tool_result(const FieldReader& block) {
  const auto id = block.required().text("tool_use_id", kMostToolNameBytes);
  json::value content = read_block_content(block, "content");
  if (content.is_null()) content = "";
  if (block.boolean("is_error").value_or(false)) content = marked_as_error(std::move(content));
  messages_.push_back(json::object{
      {"role", "tool"}, {"tool_call_id", id.value_or("")}, {"content", std::move(content)}});
}

/// Results of tools come first, as messages of their own: calls are answered before anything else
/// is said.
void MessageReader::read_user(const FieldReader& message) {
  const json::value* content = message.find("content");
  if (content != nullptr && content->is_string()) return add_user(*content);
  json::array parts;
  bool has_results = false;
  for (const FieldReader& block : message.required().list("content")) {
    if (block_type(block) == "tool_result") {
      if (!std::exchange(has_results, true)) end();
      add_tool_result(block);
    } else if (auto text = block_text(block)) {
      parts.push_back(text_part(*std::move(text)));
    }
  }
  if (!parts.empty() || !has_results) add_user(std::move(parts));
}

void MessageReader::read_assistant_block(const FieldReader& block) {
  const std::string type = block_type(block);
  if (type == "thinking") {
    const std::string text = block.required().text("thinking").value_or("");
    if (!reasoning_.empty() && !text.empty()) reasoning_ += '\n';
    reasoning_ += text;
  } else if (type == "redacted_thinking") {
    // Another server's, and of no use here.
  } else if (type == "tool_use") {
    const json::object* input = block.required().object("input");
    calls_.push_back(
        json::object{{"id", block.required().text("id", kMostToolNameBytes).value_or("")},
                     {"type", "function"},
                     {"function",
                      {{"name", block.required().text("name", kMostToolNameBytes).value_or("")},
                       {"arguments", input == nullptr ? "{}" : json_text(*input)}}}});
  } else {
    content_ += block_text(block).value_or("");
  }
}

void MessageReader::read_assistant(const FieldReader& message) {
  end_user();
  has_assistant_ = true;
  const json::value* content = message.find("content");
  if (content != nullptr && content->is_string()) {
    content_ += content->get_string();
    return;
  }
  for (const FieldReader& block : message.required().list("content")) read_assistant_block(block);
}

void MessageReader::read(const FieldReader& message) {
  constexpr auto kRoles = std::to_array<std::string_view>({"user", "assistant", "system"});
  const auto role = message.required().one_of("role", kRoles);
  if (role == "user") {
    read_user(message);
  } else if (role == "assistant") {
    read_assistant(message);
  } else if (role) {
    json::value content = read_block_content(message.required(), "content");
    if (content.is_null()) return message.note("content", "is missing");
    add_system(std::move(content));
  }
}

AnthropicConversation MessageReader::finish() {
  AnthropicConversation read;
  read.continues_final_message = has_assistant_ && calls_.empty() && !content_.empty();
  end();
  read.messages = std::move(messages_);
  return read;
}

}  // namespace

AnthropicConversation read_anthropic_messages(const FieldReader& body) {
  MessageReader reader;
  json::value system = read_block_content(body, "system");
  const bool is_empty = system.is_string() ? system.get_string().empty()
                                           : !system.is_array() || system.get_array().empty();
  if (!is_empty) reader.add_system(std::move(system));
  const json::array* messages = body.array("messages");
  if (messages == nullptr || messages->empty() || messages->size() > kMostAnthropicMessages) {
    body.note("messages",
              fmt::format("must be a list of 1 to {} messages", kMostAnthropicMessages));
    return {};
  }
  for (const FieldReader& message : body.list("messages")) reader.read(message);
  return reader.finish();
}

}  // namespace slime::engine
