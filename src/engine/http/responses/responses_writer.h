#pragma once

/// Answer of the Responses protocol: events of a message to output items, as the events of a stream
/// and as the whole object, which are made of the same items.
///
///   ResponsesWriter writer(form, tools, {});
///   send(writer.begin());
///   for each update: send(writer.add(events));
///   send(writer.finish({.outcome = ResponsesEnd::Outcome::kCompleted, .usage = ...}));
///   writer.response()  // the whole object
///
/// Items open and close one after the other; each is in the stream's last event as it was closed.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/chat/custom_input.h"
#include "engine/http/responses/responses_tools.h"
#include "engine/http/server_event.h"
#include "text/messages/message.h"

namespace slime::engine {

/// What of a request shapes its answer.
struct ResponsesForm {
  std::string id;  // without "resp_", which all ids of the answer share
  std::int64_t created_at = 0;
  json::object echo;     // members of the answer that repeat the request: model, tools, text, ...
  bool streams = false;  // else no events are made
  bool packs_reasoning = false;       // include: reasoning.encrypted_content
  bool summarises_reasoning = false;  // thoughts as a summary, which clients show
};

struct ResponsesEnd {
  enum class Outcome : std::uint8_t { kCompleted, kCutByLength, kAborted, kFailed };
  Outcome outcome = Outcome::kCompleted;
  json::object usage;
  json::object metadata;                  // the request's, and what training needs
  std::string error_code, error_message;  // of kFailed
};

class ResponsesWriter final {
 public:
  /// Log-probs of the tokens that a delta was made of; null: none were asked for.
  using LogprobsOf = std::function<json::array(text::FedRange)>;

  /// `tools` outlives the object.
  ResponsesWriter(ResponsesForm form, const ResponsesTools& tools, LogprobsOf logprobs_of);

  std::vector<ServerEvent> begin();
  std::vector<ServerEvent> add(std::span<const text::MessageEvent> events);
  /// Once. The item that is open ends where it is; a completed answer without items has a message
  /// without text.
  std::vector<ServerEvent> finish(const ResponsesEnd& end);

  /// As it is now.
  const json::object& response() const { return response_; }

 private:
  enum class Item : std::uint8_t { kNone, kReasoning, kMessage, kCall };
  /// The item that is being written.
  struct Open {
    Item kind = Item::kNone;
    json::object item;
    std::string text;      // thoughts, content, or the call's arguments or input
    json::array logprobs;  // of content
    const ResponsesTool* tool = nullptr;
    CustomInput custom_input;
  };

  void add_event(const text::MessageEvent& event);
  void open(Item kind, json::object item);
  void open_text(Item kind);
  void open_call(const text::MessageEvent& event);
  void add_text(const text::MessageEvent& event);
  void add_arguments(std::string text);
  void close(std::string_view status);
  void close_text();
  void close_call();
  json::object part() const;
  std::string item_id(std::string_view prefix) const;
  bool is_custom() const { return open_.tool != nullptr && open_.tool->is_custom; }

  void emit(std::string_view type, json::object members);
  /// With item_id, output_index, and the index of the part that the text is.
  void emit_of_text(std::string_view type, json::object members);

  const ResponsesForm form_;
  const ResponsesTools& tools_;
  const LogprobsOf logprobs_of_;
  json::object response_;
  json::array output_;  // closed items
  Open open_;
  std::int64_t sequence_ = 0;
  std::vector<ServerEvent> events_;
};

}  // namespace slime::engine
