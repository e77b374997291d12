#pragma once

/// Names of a request's tools, and the types that their parameters may have.
///
/// XML forms write values without types, so the schema says whether 007 is a number: a parameter's
/// types come from its schema through $ref, anyOf, oneOf, allOf, lists of types, enum and const.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/json.h"
#include "text/messages/json_scanner.h"

namespace slime::text {

/// Immutable; may be used by any number of threads.
class ToolSchemas final {
 public:
  ToolSchemas() = default;
  /// An array of tools as OpenAI's chat completions write them, {"type": "function", "function":
  /// {"name", "parameters"}}, as its responses do, {"type": "function", "name", "parameters"}, or
  /// as Anthropic does, {"name", "input_schema"}. What is no such tool is left out.
  explicit ToolSchemas(const json::array& tools);

  bool is_empty() const { return tools_.empty(); }
  bool has(std::string_view tool) const { return tools_.contains(tool); }
  /// Some tool's name begins so.
  bool has_prefix(std::string_view prefix) const;
  /// JsonTypes of a parameter; kString where nothing says otherwise.
  uint8_t types_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, uint8_t, std::less<>>, std::less<>> tools_;
};

/// JSON of a parameter's value: the text itself where it is JSON of one of `types`, true and false
/// for Python's True and False, else the text as a string.
std::string parameter_json(std::string_view text, uint8_t types);

}  // namespace slime::text
