#pragma once

/// Units of quantities: "5 km/h", "30^\circ", "20 dollars", "18 apples".

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "reward/plain_latex.h"

namespace slime::reward {

/// A product of powers of base units, times a factor. "km/h": {m: 1, s: -1}, factor 1000 over 3600.
/// What is counted is a base unit of its own, by its name in the singular: {apple: 1}.
struct Unit {
  std::map<std::string, int> powers;
  /// Of the factor as a decimal fraction or a quotient of two: "1000/3600" is numerator, denominator.
  std::string numerator = "1";
  std::string denominator = "1";
  bool is_percent = false;
  bool is_degree = false;  // of an angle; converted to radians where that is asked for
  bool is_radian = false;  // of an angle alone: in "rad/s" it is 1
  bool has_count = false;  // a word that is no known unit

  bool is_none() const { return powers.empty() && !is_percent && !is_degree && !is_radian; }
};

/// The unit that begins at `at` of the text, which moves behind it; nothing when there is none. `until`
/// is where the text ends. Words that are no known units are read only where `may_count`.
std::optional<Unit> read_unit(const PlainLatex& plain, std::size_t& at, std::size_t until,
                              bool may_count);

/// The unit of a sign in front of a number ("$5").
Unit currency(std::string_view name);

/// What "thousand", "million", "dozen", ... multiply by: "1000"; nothing for other words.
std::optional<std::string> multiplier(std::string_view word);

}  // namespace slime::reward
