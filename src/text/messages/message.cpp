#include "text/messages/message.h"

#include <algorithm>

namespace slime::text {
namespace {

void widen_range(FedRange& range, const FedRange& by) {
  range = range == FedRange{}
              ? by
              : FedRange{std::min(range.first, by.first), std::max(range.last, by.last)};
}

}  // namespace

void Message::add(std::span<const MessageEvent> events) {
  using Kind = MessageEvent::Kind;
  for (const MessageEvent& event : events) {
    switch (event.kind) {
      case Kind::kReasoning:
        reasoning += event.text;
        widen_range(reasoning_tokens, event.tokens);
        break;
      case Kind::kContent:
        content += event.text;
        widen_range(content_tokens, event.tokens);
        break;
      case Kind::kCall:
        calls.push_back({event.id, event.name, {}, event.tokens});
        break;
      case Kind::kArguments:
        calls[static_cast<std::size_t>(event.call)].arguments += event.text;
        [[fallthrough]];
      case Kind::kCallEnd:
        widen_range(calls[static_cast<std::size_t>(event.call)].tokens, event.tokens);
        break;
    }
  }
}

std::string_view finish_reason(std::string_view reason, std::size_t num_calls) {
  return reason == "stop" && num_calls > 0 ? "tool_calls" : reason;
}

}  // namespace slime::text
