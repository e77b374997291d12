#pragma once

/// Answer of Anthropic's protocol: events of a message to content blocks, as the events of a stream
/// and as the whole object, which are made of the same blocks.
///
///   AnthropicWriter writer(form);
///   send(writer.begin(usage));
///   for each update: send(writer.add(events));
///   send(writer.finish({.stop_reason = "end_turn", .usage = usage}));
///   writer.message()  // the whole object

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/http/anthropic/tool_input.h"
#include "engine/http/server_event.h"
#include "text/messages/message.h"

namespace slime::engine {

struct AnthropicUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of those
  std::int64_t output_tokens = 0;
  /// Cached tokens are not among the input tokens.
  json::object to_json() const;
};

struct AnthropicForm {
  std::string id;  // without "msg_"
  std::string model;
  bool streams = false;  // else no events are made
};

struct AnthropicEnd {
  std::string stop_reason;
  std::optional<std::string> stop_sequence;
  AnthropicUsage usage;
  json::object training;  // member `slime` of the message and of the stream's last event
};

class AnthropicWriter final {
 public:
  explicit AnthropicWriter(AnthropicForm form);

  std::vector<ServerEvent> begin(const AnthropicUsage& usage);
  std::vector<ServerEvent> add(std::span<const text::MessageEvent> events);
  /// Once. An answer without blocks has a text block without text.
  std::vector<ServerEvent> finish(const AnthropicEnd& end);

  const json::object& message() const { return message_; }

 private:
  /// The block that is being written; its type is its member `type`.
  struct Open {
    json::object block;
    std::string_view type;  // empty: none is open
    std::string text;       // of thinking and text
    ToolInput input;
  };

  void open(json::object block, std::string_view type);
  void add_text(std::string_view type, const std::string& text);
  void close();
  void delta(json::object delta);
  void emit(std::string_view type, json::object members);

  const AnthropicForm form_;
  json::object message_;
  json::array content_;  // closed blocks
  Open open_;
  std::vector<ServerEvent> events_;
};

/// Keeps a stream alive that waits for its first token, or for its next one.
ServerEvent anthropic_ping();

/// A call's id in Anthropic's form: "toolu_", then letters, digits, _ and -.
std::string tool_use_id(std::string_view call_id);

}  // namespace slime::engine
