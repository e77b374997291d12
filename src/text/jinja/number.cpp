#include "text/jinja/number.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

/// Without white space, and without underscores where they stand between two digits. No value where
/// they do not.
std::optional<std::string> bare_number(std::string_view text) {
  text = stripped(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return out;
}

std::string repeated(Budget& budget, int64_t count, std::string_view fill) {
  if (count <= 0) return {};
  budget.take_bytes(static_cast<std::size_t>(count) * fill.size());
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += fill;
  return out;
}

int64_t missing_width(std::string_view text, int64_t width) {
  return width - static_cast<int64_t>(count_points(text));
}

}  // namespace

std::optional<Integer> parse_integer(std::string_view text, int base) {
  const auto bare = bare_number(text);
  if (!bare) return std::nullopt;
  std::string_view digits = *bare;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
      base = prefix;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || base < 2) return std::nullopt;
  Integer value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Integer{base}, &value) ||
        __builtin_add_overflow(value, Integer{digit}, &value)) {
      fail_limit("an integer of more than 128 bits");
    }
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto bare = bare_number(text);
  if (!bare || bare->empty()) return std::nullopt;
  // strtod would also take hexadecimal numbers and nan(...), which Python does not.
  if (bare->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(bare->c_str(), &end);
  if (end != bare->c_str() + bare->size()) return std::nullopt;
  return number;
}

std::optional<Value> float_to_integer(double number) {
  if (!(std::fabs(number) < 1.7e38)) return std::nullopt;
  return Value(static_cast<Integer>(number));
}

double rounded_half_even(double number, int digits) {
  if (!std::isfinite(number)) return number;
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    return std::isfinite(scale) ? std::nearbyint(number / scale) * scale : 0.0;
  }
  // printf rounds the exact binary value, ties to even.
  char buffer[800];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, number);
  return std::strtod(buffer, nullptr);
}

std::string centered(Budget& budget, std::string text, int64_t width, std::string_view fill) {
  const int64_t missing = missing_width(text, width);
  if (missing <= 0) return text;
  // Python puts the odd one left when the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  return repeated(budget, left, fill) + text + repeated(budget, missing - left, fill);
}

std::string padded_right(Budget& budget, std::string text, int64_t width, std::string_view fill) {
  return text + repeated(budget, missing_width(text, width), fill);
}

std::string padded_left(Budget& budget, std::string text, int64_t width, std::string_view fill) {
  return repeated(budget, missing_width(text, width), fill) + text;
}

}  // namespace slime::text::jinja
