#pragma once

/// Text operations with the meaning Python gives them. The reward rules were written in Python and
/// count characters, not bytes, strip Unicode blanks, and parse and print numbers as Python does;
/// the same answer has to get the same reward here.
///
/// Texts are UTF-8. Invalid bytes count as one character each. All functions are linear in the
/// length of the text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::reward {

/// Bytes of the character that starts at text[position]; position < text.size().
std::size_t character_bytes(std::string_view text, std::size_t position);
std::size_t num_characters(std::string_view text);
/// text[-count:]
std::string_view last_characters(std::string_view text, std::size_t count);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/// Of the one-byte characters those that \s matches.
inline bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}
/// True when the character at `position` is one that \w matches. Beyond ASCII: all but blanks and
/// the common blocks of punctuation and symbols.
bool is_word_character(std::string_view text, std::size_t position);

/// text.strip()
std::string_view strip(std::string_view text);
/// text.split()
std::vector<std::string_view> split_words(std::string_view text);
/// text.split(separator)
std::vector<std::string_view> split(std::string_view text, std::string_view separator);
/// text.lower(), for ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic and full-width letters.
std::string lower(std::string_view text);
/// text.replace(from, to); `from` is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// float(text): nothing when it raises ValueError. "inf", "nan", "1_000" and surrounding blanks are
/// accepted, as there.
std::optional<double> to_float(std::string_view text);
/// str(int(value)); value is finite.
std::string to_integer_string(double value);
/// str(value) of a JSON string, number or boolean; other values as JSON.
std::string to_python_string(const json::value& value);

}  // namespace slime::reward
