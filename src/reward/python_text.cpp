#include "reward/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace slime::reward {
namespace {

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xc0U) == 0x80U; }

/// The code point at text[position]; of an invalid byte its value.
uint32_t code_point(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[position + i]));
  };
  switch (character_bytes(text, position)) {
    case 2:
      return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
    case 3:
      return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    case 4:
      return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 |
             (byte(3) & 0x3fU);
    default:
      return byte(0);
  }
}

void append_utf8(uint32_t point, std::string& out) {  // below U+10000
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0U | point >> 6);
    out += static_cast<char>(0x80U | (point & 0x3fU));
  } else {
    out += static_cast<char>(0xe0U | point >> 12);
    out += static_cast<char>(0x80U | (point >> 6 & 0x3fU));
    out += static_cast<char>(0x80U | (point & 0x3fU));
  }
}

bool is_wide_blank(uint32_t point) {
  return point == 0x85 || point == 0xa0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
         point == 0x202f || point == 0x205f || point == 0x3000;
}

bool is_blank_at(std::string_view text, std::size_t position) {
  if (static_cast<uint8_t>(text[position]) < 0x80) return is_blank(text[position]);
  return character_bytes(text, position) > 1 && is_wide_blank(code_point(text, position));
}

uint32_t lower_point(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if ((c >= 0xc0 && c <= 0xde && c != 0xd7)) return c + 32;
  if ((c >= 0x100 && c <= 0x12f) || (c >= 0x132 && c <= 0x137) || (c >= 0x14a && c <= 0x177))
    return c | 1U;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e)) return c % 2 == 1 ? c + 1 : c;
  if (c == 0x178) return 0xff;
  if (c == 0x386) return 0x3ac;
  if (c >= 0x388 && c <= 0x38a) return c + 37;
  if (c == 0x38c) return 0x3cc;
  if (c == 0x38e || c == 0x38f) return c + 63;
  if (c >= 0x391 && c <= 0x3ab && c != 0x3a2) return c + 32;
  if (c >= 0x400 && c <= 0x40f) return c + 80;
  if (c >= 0x410 && c <= 0x42f) return c + 32;
  if (c >= 0xff21 && c <= 0xff3a) return c + 32;
  return c;
}

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

std::size_t character_bytes(std::string_view text, std::size_t position) {
  const auto lead = static_cast<uint8_t>(text[position]);
  const std::size_t length = lead < 0xc2   ? 1
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 1;
  if (position + length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[position + i])) return 1;
  }
  return length;
}

std::size_t num_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += character_bytes(text, i)) ++count;
  return count;
}

std::string_view last_characters(std::string_view text, std::size_t count) {
  // A character has at most 4 bytes, so a tail of 4 * count bytes, cut at the start of a character,
  // is enough.
  std::size_t begin = text.size() > 4 * count ? text.size() - 4 * count : 0;
  while (begin > 0 && begin < text.size() && is_continuation(text[begin])) --begin;
  std::string_view tail = text.substr(begin);
  for (std::size_t surplus = num_characters(tail); surplus > count; --surplus)
    tail.remove_prefix(character_bytes(tail, 0));
  return tail;
}

bool is_word_character(std::string_view text, std::size_t position) {
  const char c = text[position];
  if (static_cast<uint8_t>(c) < 0x80) return is_letter(c) || is_digit(c) || c == '_';
  const uint32_t point = code_point(text, position);
  if (point < 0xc0)
    return point == 0xaa || point == 0xb2 || point == 0xb3 || point == 0xb5 || point == 0xb9 ||
           point == 0xba || (point >= 0xbc && point <= 0xbe);
  return !(point == 0xd7 || point == 0xf7 || is_wide_blank(point) ||
           (point >= 0x2000 && point <= 0x206f) || (point >= 0x20a0 && point <= 0x20cf) ||
           (point >= 0x2190 && point <= 0x245f) || (point >= 0x2500 && point <= 0x2bff) ||
           (point >= 0x3001 && point <= 0x3004) || (point >= 0x3008 && point <= 0x3020) ||
           (point >= 0xfe10 && point <= 0xfe6f) || (point >= 0xff01 && point <= 0xff0f) ||
           (point >= 0xff1a && point <= 0xff20) || point >= 0x1f000);
}

std::string_view strip(std::string_view text) {
  while (!text.empty() && is_blank_at(text, 0)) text.remove_prefix(character_bytes(text, 0));
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && text.size() - last < 4 && is_continuation(text[last])) --last;
    if (last + character_bytes(text, last) != text.size() || !is_blank_at(text, last)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); i += i < text.size() ? character_bytes(text, i) : 1) {
    if (i < text.size() && !is_blank_at(text, i)) continue;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    begin = i < text.size() ? i + character_bytes(text, i) : i;
  }
  return words;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + separator.size();
  }
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = character_bytes(text, i);
    const bool is_invalid = bytes == 1 && static_cast<uint8_t>(text[i]) >= 0x80;
    if (bytes == 4 || is_invalid) {
      out.append(text, i, bytes);
    } else {
      append_utf8(lower_point(code_point(text, i)), out);
    }
    i += bytes;
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(from, begin)) != std::string_view::npos;
       begin = found + from.size()) {
    out.append(text, begin, found - begin).append(to);
  }
  return out.append(text, begin);
}

std::optional<double> to_float(std::string_view text) {
  text = strip(text);
  std::size_t position = 0;
  std::string plain;  // without underscores, so that the C library reads it
  if (position < text.size() && (text[position] == '-' || text[position] == '+'))
    plain += text[position++];
  const std::string word = lower(text.substr(position));
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
  if (!value.is_double()) return json::serialize(value);
  std::string text = fmt::format("{}", value.get_double());
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace slime::reward
