#include "chat/conversation.h"

#include <algorithm>
#include <set>

namespace slime::chat {
namespace {

bool is_of(const json::object& message, std::string_view role) {
  return message.at("role").as_string() == role;
}

}  // namespace

void Conversation::ask(std::string_view question) {
  turns_.push_back({{"role", "user"}, {"content", question}});
}

void Conversation::answer(std::string_view content, const std::vector<ToolCall>& calls) {
  json::object message{{"role", "assistant"}, {"content", content}};
  if (!calls.empty()) {
    json::array list;
    for (const ToolCall& call : calls) {
      list.push_back(
          json::object{{"id", call.id},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    message["tool_calls"] = std::move(list);
  }
  turns_.push_back(std::move(message));
}

namespace {

/// Calls of the last answer without a result, as (id, name).
std::vector<std::pair<std::string, std::string>> open_calls_of(
    const std::vector<json::object>& turns) {
  std::set<std::string> answered;
  auto turn = turns.rbegin();
  for (; turn != turns.rend() && is_of(*turn, "tool"); ++turn)
    answered.emplace(turn->at("tool_call_id").as_string());
  std::vector<std::pair<std::string, std::string>> open;
  if (turn == turns.rend() || !turn->contains("tool_calls")) return open;
  for (const json::value& call : turn->at("tool_calls").as_array()) {
    std::string id(call.at("id").as_string());
    if (answered.contains(id)) continue;
    open.emplace_back(std::move(id), std::string(call.at("function").at("name").as_string()));
  }
  return open;
}

}  // namespace

bool Conversation::add_result(std::string_view result) {
  const auto open = open_calls_of(turns_);
  if (open.empty()) return false;
  turns_.push_back({{"role", "tool"}, {"tool_call_id", open.front().first}, {"content", result}});
  return true;
}

std::vector<std::string> Conversation::open_calls() const {
  std::vector<std::string> names;
  for (const auto& [id, name] : open_calls_of(turns_)) names.push_back(name);
  return names;
}

bool Conversation::undo() {
  const auto last = std::find_if(turns_.rbegin(), turns_.rend(),
                                 [](const json::object& turn) { return is_of(turn, "user"); });
  if (last == turns_.rend()) return false;
  turns_.erase(std::prev(last.base()), turns_.end());
  return true;
}

void Conversation::take_back_question() {
  if (!turns_.empty() && is_of(turns_.back(), "user")) turns_.pop_back();
}

bool Conversation::take_back_answer() {
  if (turns_.empty() || !is_of(turns_.back(), "assistant")) return false;
  turns_.pop_back();
  return true;
}

json::array Conversation::messages() const {
  json::array list;
  if (!system_.empty()) list.push_back(json::object{{"role", "system"}, {"content", system_}});
  for (const json::object& turn : turns_) list.push_back(turn);
  return list;
}

}  // namespace slime::chat
