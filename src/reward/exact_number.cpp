#include "reward/exact_number.h"

#include <algorithm>

namespace slime::reward::exact {
namespace {

constexpr std::size_t kMostDigits = 4'000;

}  // namespace

std::size_t bits_of(const Integer& value) { return value == 0 ? 0 : msb(abs(value)) + 1; }
std::size_t bits_of(const Rational& value) {
  return std::max(bits_of(numerator(value)), bits_of(denominator(value)));
}

std::optional<Rational> rational_of(const std::string& text) {
  if (text.size() > kMostDigits) return std::nullopt;
  const std::size_t point = text.find('.');
  std::string digits = text;
  if (point != std::string::npos) digits.erase(point, 1);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  const Integer whole = digits.empty() ? Integer(0) : Integer(digits);
  if (point == std::string::npos) return Rational(whole);
  const auto decimals = static_cast<unsigned>(text.size() - point - 1);
  return Rational(whole, boost::multiprecision::pow(Integer(10), decimals));
}

std::optional<Integer> exact_root(const Integer& number, int index) {
  if (number < 0) return std::nullopt;
  if (number <= 1) return number;
  const std::size_t bits = bits_of(number);
  Integer low = 0;
  Integer high = Integer(1) << (bits / static_cast<std::size_t>(index) + 1);
  if (bits > 4'096) return std::nullopt;
  while (low < high) {
    const Integer middle = (low + high + 1) / 2;
    if (boost::multiprecision::pow(middle, static_cast<unsigned>(index)) <= number) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (boost::multiprecision::pow(low, static_cast<unsigned>(index)) != number) return std::nullopt;
  return low;
}

Integer floor_of(const Rational& number) {
  Integer quotient, remainder;
  divide_qr(numerator(number), denominator(number), quotient, remainder);
  if (remainder < 0) --quotient;
  return quotient;
}

}  // namespace slime::reward::exact
