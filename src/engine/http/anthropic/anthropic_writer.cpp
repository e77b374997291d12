#include "engine/http/anthropic/anthropic_writer.h"

#include <fmt/format.h>

#include <utility>

namespace slime::engine {
namespace {

using Event = text::MessageEvent;
using Kind = Event::Kind;

constexpr std::string_view kThinking = "thinking";
constexpr std::string_view kText = "text";
constexpr std::string_view kToolUse = "tool_use";

/// Clients send the signature back with the thoughts, and no check is made of it: FNV-1a of the text.
std::string signature_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : text) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3ULL;
  }
  return fmt::format("slime-{:016x}", hash);
}

bool is_plain(unsigned char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte == '_' || byte == '-';
}

}  // namespace

json::object AnthropicUsage::to_json() const {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", output_tokens}};
}

ServerEvent anthropic_ping() { return {"ping", R"({"type":"ping"})"}; }

std::string tool_use_id(std::string_view call_id) {
  constexpr std::string_view kOpenAi = "call_", kOwn = "toolu_";
  if (call_id.starts_with(kOpenAi)) call_id.remove_prefix(kOpenAi.size());
  if (call_id.starts_with(kOwn)) call_id.remove_prefix(kOwn.size());
  std::string id(kOwn);
  for (const char byte : call_id) id += is_plain(static_cast<unsigned char>(byte)) ? byte : '_';
  return id;
}

AnthropicWriter::AnthropicWriter(AnthropicForm form) : form_(std::move(form)) {
  message_ = {{"id", "msg_" + form_.id},  {"type", "message"},        {"role", "assistant"},
              {"model", form_.model},     {"content", json::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr}, {"usage", json::object()}};
}

void AnthropicWriter::emit(std::string_view type, json::object members) {
  if (!form_.streams) return;
  json::object event{{"type", type}};
  for (auto& member : members) event.emplace(member.key(), std::move(member.value()));
  events_.push_back({std::string(type), json_text(event)});
}

std::vector<ServerEvent> AnthropicWriter::begin(const AnthropicUsage& usage) {
  message_["usage"] = usage.to_json();
  emit("message_start", {{"message", message_}});
  return std::exchange(events_, {});
}

void AnthropicWriter::open(json::object block, std::string_view type) {
  close();
  open_ = {.block = std::move(block), .type = type};
  emit("content_block_start", {{"index", content_.size()}, {"content_block", open_.block}});
}

void AnthropicWriter::delta(json::object delta) {
  emit("content_block_delta", {{"index", content_.size()}, {"delta", std::move(delta)}});
}

void AnthropicWriter::add_text(std::string_view type, const std::string& text) {
  if (open_.type != type) {
    json::object block{{"type", type}, {type, ""}};
    if (type == kThinking) block["signature"] = "";
    open(std::move(block), type);
  }
  open_.text += text;
  delta({{"type", fmt::format("{}_delta", type)}, {type, text}});
}

void AnthropicWriter::close() {
  if (open_.type.empty()) return;
  if (open_.type == kToolUse) {
    const std::string rest = open_.input.finish();
    delta({{"type", "input_json_delta"}, {"partial_json", rest}});
    open_.block["input"] = open_.input.object();
  } else {
    open_.block[open_.type] = open_.text;
    if (open_.type == kThinking) {
      const std::string signature = signature_of(open_.text);
      delta({{"type", "signature_delta"}, {"signature", signature}});
      open_.block["signature"] = signature;
    }
  }
  emit("content_block_stop", {{"index", content_.size()}});
  content_.push_back(std::move(open_.block));
  open_ = {};
}

std::vector<ServerEvent> AnthropicWriter::add(std::span<const Event> events) {
  for (const Event& event : events) {
    switch (event.kind) {
      case Kind::kReasoning:
        add_text(kThinking, event.text);
        break;
      case Kind::kContent:
        add_text(kText, event.text);
        break;
      case Kind::kCall:
        open({{"type", kToolUse},
              {"id", tool_use_id(event.id)},
              {"name", event.name},
              {"input", json::object()}},
             kToolUse);
        break;
      case Kind::kArguments: {
        if (open_.type != kToolUse) break;
        std::string text = open_.input.add(event.text);
        if (!text.empty()) delta({{"type", "input_json_delta"}, {"partial_json", std::move(text)}});
        break;
      }
      case Kind::kCallEnd:
        close();
        break;
    }
  }
  return std::exchange(events_, {});
}

std::vector<ServerEvent> AnthropicWriter::finish(const AnthropicEnd& end) {
  if (open_.type.empty() && content_.empty()) open({{"type", kText}, {kText, ""}}, kText);
  close();
  message_["content"] = std::move(content_);
  message_["stop_reason"] = end.stop_reason;
  message_["stop_sequence"] =
      end.stop_sequence ? json::value(*end.stop_sequence) : json::value(nullptr);
  message_["usage"] = end.usage.to_json();
  if (!end.training.empty()) message_["slime"] = end.training;
  emit("message_delta",
       {{"delta",
         {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
        {"usage", message_["usage"]}});
  json::object last;
  if (!end.training.empty()) last["slime"] = end.training;
  emit("message_stop", std::move(last));
  return std::exchange(events_, {});
}

}  // namespace slime::engine
