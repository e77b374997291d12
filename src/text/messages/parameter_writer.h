#pragma once

/// JSON arguments out of parameters that a model wrote one by one as text.
///
/// The schema gives the types: a string is given out as it comes, another value when it is whole.

#include <cstdint>
#include <string>
#include <string_view>

#include "text/messages/message_writer.h"
#include "text/messages/tool_schemas.h"

namespace slime::text {

class ParameterWriter final {
 public:
  /// `has_newlines`: one newline at each end of a value belongs to the form. The references outlive
  /// the object.
  ParameterWriter(const ToolSchemas& tools, MessageWriter& writer, bool has_newlines)
      : tools_(tools), writer_(writer), has_newlines_(has_newlines) {}

  void begin_call(std::string_view tool);

  /// A parameter's key as it stands between its marks.
  void begin_value(std::string_view key, uint64_t at);
  /// What stands in a tag behind its "=": a key, perhaps in quotes, and attributes.
  void begin_value_of_tag(std::string_view tag, uint64_t at);
  void value(std::string_view text, uint64_t at);
  void end_value(uint64_t at);

  /// The closing brace.
  void end_call(uint64_t at);

 private:
  void begin(std::string_view key, uint8_t types, uint64_t at);
  void write_key(std::string& json);

  const ToolSchemas& tools_;
  MessageWriter& writer_;
  bool has_newlines_;
  std::string tool_, key_;
  std::string value_;  // of one that is no string
  uint8_t types_ = 0;
  uint64_t begin_ = 0;  // of the value
  bool has_parameters_ = false;
  bool is_value_begun_ = false;
  bool has_newline_ = false;  // that may belong to the form
};

/// What a tag says behind its "=": f of `f` and of `"f"`.
std::string_view tag_value(std::string_view tag);

}  // namespace slime::text
