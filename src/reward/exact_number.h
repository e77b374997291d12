#pragma once

/// Exact numbers of answers: integers and rationals of any size, within limits.

#include <boost/multiprecision/cpp_int.hpp>
#include <cstddef>
#include <optional>
#include <string>

namespace slime::reward::exact {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

std::size_t bits_of(const Integer& value);
/// Of the longer of numerator and denominator.
std::size_t bits_of(const Rational& value);

/// The number that "12.50" means; nothing for more than 4,000 characters.
std::optional<Rational> rational_of(const std::string& text);

/// The whole index-th root of a number that has one; nothing for more than 4,096 bits.
std::optional<Integer> exact_root(const Integer& number, int index);

/// The largest integer that is not above the number.
Integer floor_of(const Rational& number);

}  // namespace slime::reward::exact
