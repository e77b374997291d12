#pragma once

/// Arguments of a call as the `input` of a tool_use block, which is a JSON object whatever the model
/// wrote, while they stream.
///
///   {"a": 1}      {"a": 1}
///   oops          {"_raw": "oops"}
///   {"a": [1, x   {"a": [1, null],"_raw": "{\"a\": [1, x"}
///
/// Clients parse each prefix of the stream and fail at one that begins no JSON value. So what breaks
/// the grammar is held back, and the object is closed with all that the model wrote.

#include <string>
#include <string_view>

#include "core/json.h"
#include "text/messages/json_scanner.h"

namespace slime::engine {

class ToolInput final {
 public:
  /// A delta of the arguments; what of it goes out.
  std::string add(std::string_view arguments);
  /// The rest. All that went out is one JSON object.
  std::string finish();

  /// The object, after finish().
  json::object object() const;

 private:
  enum class State : unsigned char { kBefore, kInside, kWhole, kBroken };
  void step(char byte, std::string& out);
  std::string closing() const;

  State state_ = State::kBefore;
  text::JsonScanner scanner_;  // at the end of sent_; of a whole object before its last brace
  std::string raw_, sent_;
};

}  // namespace slime::engine
