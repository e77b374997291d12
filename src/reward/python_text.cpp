#include "reward/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace slime::reward {
namespace {

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xc0U) == 0x80U; }

/// Skips digits with single underscores between them; false when there is none.
bool skip_digits(std::string_view text, std::size_t& position, std::string& plain) {
  const std::size_t begin = position;
  while (position < text.size()) {
    if (is_digit(text[position])) {
      plain += text[position++];
    } else if (text[position] == '_' && position > begin && position + 1 < text.size() &&
               is_digit(text[position + 1])) {
      ++position;
    } else {
      break;
    }
  }
  return position > begin;
}

}  // namespace

std::string_view last_characters(std::string_view text, std::size_t count) {
  // A character has at most 4 bytes, so a tail of 4 * count bytes, cut at the start of a character,
  // is enough.
  std::size_t begin = text.size() > 4 * count ? text.size() - 4 * count : 0;
  while (begin > 0 && begin < text.size() && is_continuation(text[begin])) --begin;
  std::string_view tail = text.substr(begin);
  for (std::size_t surplus = count_points(tail); surplus > count; --surplus)
    tail.remove_prefix(point_bytes(tail, 0));
  return tail;
}

bool is_word_character(std::string_view text, std::size_t position) {
  return text::python::is_word_point(next_point(text, position));
}

std::optional<double> to_float(std::string_view text) {
  text = stripped(text);
  std::size_t position = 0;
  std::string plain;  // without underscores, so that the C library reads it
  if (position < text.size() && (text[position] == '-' || text[position] == '+'))
    plain += text[position++];
  const std::string word = to_lower(text.substr(position));
  if (word == "inf" || word == "infinity") return plain == "-" ? -INFINITY : INFINITY;
  if (word == "nan") return std::nan("");
  const bool has_whole = skip_digits(text, position, plain);
  bool has_fraction = false;
  if (position < text.size() && text[position] == '.') {
    plain += text[position++];
    has_fraction = skip_digits(text, position, plain);
  }
  if (!has_whole && !has_fraction) return std::nullopt;
  if (position < text.size() && (text[position] == 'e' || text[position] == 'E')) {
    plain += text[position++];
    if (position < text.size() && (text[position] == '-' || text[position] == '+'))
      plain += text[position++];
    if (!skip_digits(text, position, plain)) return std::nullopt;
  }
  if (position != text.size()) return std::nullopt;
  const char* begin = plain.c_str() + (plain.front() == '+' ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, plain.c_str() + plain.size(), value);
  return error == std::errc::result_out_of_range ? std::strtod(begin, nullptr) : value;
}

std::string to_integer_string(double value) {
  const double whole = std::trunc(value);
  return whole == 0 ? "0" : fmt::format("{:.0f}", whole);
}

std::string to_python_string(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "True" : "False";
  return value.is_double() ? python_float_text(value.get_double()) : json_text(value);
}

}  // namespace slime::reward
