#pragma once

/// Python text functions that the reward rules rely on: str (text/unicode/python_text.h), and
/// parsing and printing of numbers. The same answer has to get the same reward here.
///
/// Texts are UTF-8. Invalid bytes count as one character each. All functions are linear in the
/// length of the text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/unicode/python_text.h"

namespace slime::reward {

using text::python::count_points;
using text::python::next_point;
using text::python::point_bytes;
using text::python::replaced;
using text::python::split;
using text::python::stripped;
using text::python::to_lower;

/// text[-count:]
std::string_view last_characters(std::string_view text, std::size_t count);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/// Of the one-byte characters those that \s matches.
inline bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}
/// Whether \w matches the character at `position`.
bool is_word_character(std::string_view text, std::size_t position);

/// float(text): nothing when it raises ValueError. "inf", "nan", "1_000" and surrounding blanks are
/// accepted, as there.
std::optional<double> to_float(std::string_view text);
/// str(int(value)); value is finite.
std::string to_integer_string(double value);
/// str(value) of a JSON string, number or boolean; other values as JSON.
std::string to_python_string(const json::value& value);

}  // namespace slime::reward
