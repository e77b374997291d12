#pragma once

/// Events of a model's message while it is generated, and the message that they add up to.
///
/// Streaming is the definition: the parts of a whole message are the concatenation of its events,
/// which are the same, up to where deltas are cut, however the output is split.
///
///   output  <think>\nHm.\n</think>\n\nSure!\n
///           <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>
///   events  reasoning "Hm."   content "Sure!"   call 0 "f"   arguments "{\"a\": 1}"   end 0

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slime::text {

/// Fed tokens [first, last); of a parser that is fed text alone, fed pieces.
struct FedRange {
  std::size_t first = 0;
  std::size_t last = 0;
  bool operator==(const FedRange&) const = default;
};

struct MessageEvent {
  enum class Kind : uint8_t {
    kReasoning,  // delta of the thoughts
    kContent,    // delta of the content
    kCall,       // a call begins: index, id, name; its arguments are empty so far
    kArguments,  // delta of a call's arguments
    kCallEnd,    // a call is complete
  };
  Kind kind = Kind::kContent;
  int call = -1;         // of call events: its place in this message, 0, 1, ...
  std::string text;      // of deltas
  std::string id, name;  // of kCall
  /// What it was made of. Tokens of marks belong to the call's begin and end; those of dropped
  /// white space and of thinking marks to no event.
  FedRange tokens;
};

/// How the engine stopped.
enum class OutputEnd : uint8_t {
  kStop,  // the model ended its message, or wrote a stop string
  kCut,   // by length or by an abort
};

struct ToolCall {
  std::string id, name;
  std::string arguments;  // the model's own text where it writes JSON, else JSON made of it
  FedRange tokens;        // from its opening mark to its closing one
};

struct Message {
  std::string reasoning;  // empty: none
  std::string content;    // empty: none
  std::vector<ToolCall> calls;
  FedRange reasoning_tokens, content_tokens;  // around all deltas; {0, 0} where there are none
  /// Adds events in order.
  void add(std::span<const MessageEvent> events);
};

/// The finish reason of a message that the engine ended with `reason`: "tool_calls" instead of
/// "stop" where it has calls.
std::string_view finish_reason(std::string_view reason, std::size_t num_calls);

}  // namespace slime::text
