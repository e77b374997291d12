#include "chat/answer.h"

#include <fmt/format.h>

#include <stdexcept>

namespace slime::chat {
namespace {

const json::object* object_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

const json::array* array_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_array();
}

std::string text_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

int64_t count_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

/// What an error says; a server may send one without a message.
std::string text_of_error(const json::object& error) {
  std::string message = text_in(error, "message");
  return message.empty() ? json_text(error) : message;
}

/// A server may send any place: calls are as many as a person can read.
constexpr int64_t kMostCalls = 256;

void add_call(const json::object& delta, Answer& answer, AnswerPart& part) {
  const int64_t place = count_in(delta, "index");
  if (place < 0 || place >= kMostCalls) return;
  const auto index = static_cast<std::size_t>(place);
  if (answer.calls.size() <= index) answer.calls.resize(index + 1);
  ToolCall& call = answer.calls[index];
  if (std::string id = text_in(delta, "id"); !id.empty()) call.id = std::move(id);
  for (const char* kind : {"function", "custom"}) {
    const json::object* function = object_in(delta, kind);
    if (function == nullptr) continue;
    if (std::string name = text_in(*function, "name"); !name.empty()) call.name = std::move(name);
    call.arguments += text_in(*function, "arguments") + text_in(*function, "input");
  }
  part.calls.push_back(index);
}

void add_tokens(const json::object& logprobs, AnswerPart& part) {
  const json::array* list = array_in(logprobs, "content");
  if (list == nullptr) return;
  for (const json::value& value : *list) {
    const json::object* entry = value.if_object();
    if (entry == nullptr) continue;
    DrawnToken token{.bytes = text_in(*entry, "token")};
    if (const json::array* bytes = array_in(*entry, "bytes")) {
      token.bytes.clear();
      for (const json::value& byte : *bytes)
        if (byte.is_int64()) token.bytes += static_cast<char>(byte.get_int64());
    }
    const json::value* number = entry->if_contains("logprob");
    if (number != nullptr && number->is_number()) token.log_prob = number->to_number<double>();
    part.tokens.push_back(std::move(token));
  }
}

}  // namespace

bool EventLines::add(std::string_view bytes,
                     const std::function<void(std::string_view data)>& use) {
  constexpr std::string_view kData = "data:";
  for (const char byte : bytes) {
    if (byte != '\n') {
      if (line_.size() >= kLongestLine) return false;
      line_ += byte;
      continue;
    }
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kData)) {
      line.remove_prefix(kData.size());
      if (line.starts_with(' ')) line.remove_prefix(1);
      use(line);
    }
    line_.clear();
  }
  return true;
}

AnswerPart add_event(std::string_view data, Answer& answer) {
  AnswerPart part;
  const auto event = try_parse_json(data);
  if (!event || !event->is_object()) return part;  // [DONE]
  const json::object& fields = event->get_object();
  if (const json::object* error = object_in(fields, "error"))
    throw std::runtime_error(text_of_error(*error));
  if (const json::object* usage = object_in(fields, "usage")) {
    answer.prompt_tokens = count_in(*usage, "prompt_tokens");
    answer.answer_tokens = count_in(*usage, "completion_tokens");
  }
  const json::array* choices = array_in(fields, "choices");
  if (choices == nullptr || choices->empty() || !choices->at(0).is_object()) return part;
  const json::object& choice = choices->at(0).get_object();
  if (const json::object* delta = object_in(choice, "delta")) {
    part.thoughts = text_in(*delta, "reasoning_content");
    if (part.thoughts.empty()) part.thoughts = text_in(*delta, "reasoning");  // vLLM's name
    part.content = text_in(*delta, "content");
    if (const json::array* calls = array_in(*delta, "tool_calls"))
      for (const json::value& call : *calls)
        if (call.is_object()) add_call(call.get_object(), answer, part);
  }
  if (const json::object* logprobs = object_in(choice, "logprobs")) add_tokens(*logprobs, part);
  if (std::string finish = text_in(choice, "finish_reason"); !finish.empty())
    answer.finish = std::move(finish);
  answer.thoughts += part.thoughts;
  answer.content += part.content;
  return part;
}

std::string message_of_error(int status, std::string_view body) {
  const auto answer = try_parse_json(body);
  if (answer && answer->is_object()) {
    const json::object& fields = answer->get_object();
    if (const json::object* error = object_in(fields, "error"))
      return fmt::format("{} (status {})", text_of_error(*error), status);
    if (std::string message = text_in(fields, "message"); !message.empty())
      return fmt::format("{} (status {})", message, status);
  }
  constexpr std::size_t kLongest = 300;
  return fmt::format("status {}: {}", status, body.substr(0, kLongest));
}

}  // namespace slime::chat
