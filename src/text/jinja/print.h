#pragma once

/// Printing as Python does it: str(), repr() and json.dumps(), byte for byte. Models were trained
/// on this form.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace slime::text::jinja {

/// {{ value }}: None, True, 1.0, [1, 'a'], {'k': None}; Undefined is "".
std::string to_str(const Value& value);
/// The same, charged by the value's extent.
std::string paid_text(const Value& value, Budget& budget);
std::string repr(const Value& value);
/// 'text' in single quotes, in double quotes where it holds a single one and no double one.
std::string repr_of_text(std::string_view text);
std::string to_decimal(Integer value);
/// The shortest digits that read back as the same number: 0.1, 1e+16, 1e-05, 5.0, inf, nan.
std::string repr_of_float(double value);

/// The arguments of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // white space per level; absent: one line
  std::string item_separator = ", ";  // with indent "," is usual
  std::string key_separator = ": ";
  bool sort_keys = false;
  std::size_t limit_bytes = std::size_t{256} << 20;
};

/// Fails (kType) on what JSON cannot hold, Undefined included; (kLimit) beyond limit_bytes.
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace slime::text::jinja
