#pragma once

/// Numbers from text, and rounding, as Python does them.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace slime::text::jinja {

/// int(text, base): surrounding white space, a sign, single underscores, and a prefix that fits the
/// base. Base 0: by prefix.
std::optional<Integer> parse_integer(std::string_view text, int base);
/// float(text).
std::optional<double> parse_float(std::string_view text);
/// int(number): towards zero; nothing for nan, infinity and beyond 128 bits.
std::optional<Value> float_to_integer(double number);
/// round(number, digits): to the nearest decimal, ties to even.
double rounded_half_even(double number, int digits);

/// str.center, ljust, rjust: to `width` code points with `fill`.
std::string centered(Budget& budget, std::string text, int64_t width, std::string_view fill);
std::string padded_right(Budget& budget, std::string text, int64_t width, std::string_view fill);
std::string padded_left(Budget& budget, std::string text, int64_t width, std::string_view fill);

}  // namespace slime::text::jinja
