#include "reward/closed_number.h"

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <cmath>
#include <limits>

#include "reward/generic_point.h"

namespace slime::reward {
namespace {

constexpr std::size_t kMostRoots = 10;
constexpr double kMostLogDegree = 12;  // log2 of the degree of the number
constexpr int kLargestPower = 64;

/// log2 of |x|, rounded up.
template <typename Real>
double log2_of(const Real& x) {
  return x == 0 ? kNoError : static_cast<double>(x.backend().exponent()) + 1;
}

double log2_sum(double a, double b) {
  const double larger = std::max(a, b);
  return larger == kNoError ? kNoError : larger + std::log2(1 + std::exp2(std::min(a, b) - larger));
}

/// Adds the rounding of a few operations whose results are of the size of `v`.
template <int kBits>
ClosedNumber<kBits> rounded(ClosedNumber<kBits> v) {
  const double size = log2_size(v);
  if (size > kNoError / 2) v.error = log2_sum(v.error, size - kBits + 4);
  return v;
}

/// The bounds of a root of index k.
template <int kBits>
void bound_root(const ClosedNumber<kBits>& radicand, int index, ClosedNumber<kBits>& v) {
  const double k = index;
  if (radicand.numerator >= radicand.denominator) {
    v.numerator = (radicand.numerator + (k - 1) * radicand.denominator) / k;
    v.denominator = radicand.denominator;
  } else {
    v.numerator = radicand.numerator;
    v.denominator = ((k - 1) * radicand.numerator + radicand.denominator) / k;
  }
}

}  // namespace

template <int kBits>
double log2_size(const ClosedNumber<kBits>& v) {
  return std::max(log2_of(v.re), log2_of(v.im)) + 0.5;
}

template <int kBits>
ClosedNumbers<kBits>::ClosedNumbers(int point, bool is_transcendental, double text_bits,
                                    int most_transcendental)
    : point_(point),
      is_transcendental_(is_transcendental),
      text_bits_(text_bits),
      most_transcendental_(most_transcendental) {}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::integer(const Real& number) {
  Number v;
  v.re = number;
  v.numerator = std::max(0.0, log2_of(number));
  return v;
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::rational(
    const boost::multiprecision::cpp_rational& number) {
  const auto bits = [](const boost::multiprecision::cpp_int& x) {
    return x == 0 ? 0.0 : static_cast<double>(msb(abs(x))) + 1;
  };
  Number v;
  v.numerator = bits(numerator(number));
  v.denominator = std::max(0.0, bits(denominator(number)) - 1);
  const bool is_exact = denominator(number) == 1 && v.numerator < kBits;
  v.re = Real(numerator(number));
  if (denominator(number) != 1) v.re /= Real(denominator(number));
  return is_exact ? v : rounded(v);
}

template <int kBits>
std::optional<bool> ClosedNumbers<kBits>::is_zero(const Number& v) const {
  const double size = log2_size(v);
  if (size - 1.5 > v.error) return false;
  const double degree = std::exp2(log_degree_ + (uses_symbols_ ? 1 : 0));
  const double bound = is_transcendental_ ? text_bits_ : (degree - 1) * v.numerator + v.denominator;
  if (log2_sum(size, v.error) < -bound) return true;
  return std::nullopt;
}

/// A multiple of 2^-16.
template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::generic(double re, double im) const {
  constexpr double kParts = 65536;
  Number v;
  v.re = Real(std::nearbyint(re * kParts)) / kParts;
  v.im = Real(std::nearbyint(im * kParts)) / kParts;
  v.numerator = std::log2((std::abs(re) + std::abs(im)) * kParts + 2);
  v.denominator = 16;
  return v;
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::symbol(std::string_view name) {
  uses_symbols_ = true;
  const std::complex<double> at = generic_point(name, point_);
  return generic(at.real(), at.imag());
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::real_symbol(std::string_view name) {
  const double size = std::abs(generic_point(name, point_)) + std::arg(generic_point(name, 0));
  return generic(point_ % 2 == 0 ? size : -size, 0);
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::pi() {
  if (!is_transcendental_) return generic(3 + std::abs(generic_point("pi", point_)) / 8, 0);
  Number v;
  v.re = boost::math::constants::pi<Real>();
  return rounded(v);
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::sum(const Number& a, const Number& b, int sign) {
  Number v;
  v.re = sign > 0 ? a.re + b.re : a.re - b.re;
  v.im = sign > 0 ? a.im + b.im : a.im - b.im;
  v.error = log2_sum(a.error, b.error);
  v.numerator = log2_sum(a.numerator + b.denominator, a.denominator + b.numerator);
  v.denominator = a.denominator + b.denominator;
  return rounded(v);
}

template <int kBits>
ClosedNumber<kBits> ClosedNumbers<kBits>::product(const Number& a, const Number& b) {
  Number v;
  v.re = a.re * b.re - a.im * b.im;
  v.im = a.re * b.im + a.im * b.re;
  v.error = log2_sum(log2_sum(log2_size(a) + b.error, log2_size(b) + a.error), a.error + b.error);
  // Two products may cancel, so the rounding is of their size.
  v.error = log2_sum(v.error, log2_size(a) + log2_size(b) - kBits + 4);
  v.numerator = a.numerator + b.numerator;
  v.denominator = a.denominator + b.denominator;
  return v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::quotient(const Number& a,
                                                                  const Number& b) const {
  const std::optional<bool> fails = is_zero(b);
  if (!fails || *fails) return std::nullopt;
  const Real norm = b.re * b.re + b.im * b.im;
  const double smallest = log2_size(b) - 1.5;  // log2 of a lower bound of |b|
  if (smallest - 2 < b.error) return std::nullopt;
  Number v;
  v.re = (a.re * b.re + a.im * b.im) / norm;
  v.im = (a.im * b.re - a.re * b.im) / norm;
  v.error = log2_sum(a.error - smallest, log2_size(a) + b.error - 2 * smallest) + 2;
  v.error = log2_sum(v.error, log2_size(a) - smallest - kBits + 6);
  v.numerator = a.numerator + b.denominator;
  v.denominator = a.denominator + b.numerator;
  return v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::root(const Number& radicand, int index) {
  for (const Root& known : roots_) {
    if (known.index == index && known.radicand.re == radicand.re &&
        known.radicand.im == radicand.im) {
      return known.value;
    }
  }
  const double log_index = std::log2(index);
  if (roots_.size() == kMostRoots || log_degree_ + log_index > kMostLogDegree) return std::nullopt;
  const std::optional<bool> is_nothing = is_zero(radicand);
  if (!is_nothing) return std::nullopt;
  if (*is_nothing) return Number();
  if (log2_size(radicand) - 3.5 < radicand.error) return std::nullopt;
  std::optional<Number> v = index == 2 ? square_root(radicand) : other_root(radicand, index);
  if (!v) return std::nullopt;
  bound_root(radicand, index, *v);
  roots_.push_back({radicand, index, *v});
  log_degree_ += log_index;
  return v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::square_root(const Number& radicand) const {
  Number v;
  const Real modulus = sqrt(Real(radicand.re * radicand.re + radicand.im * radicand.im));
  if (radicand.re >= 0) {
    v.re = sqrt(Real((modulus + radicand.re) / 2));
    v.im = radicand.im / (2 * v.re);
  } else {
    const Real height = sqrt(Real((modulus - radicand.re) / 2));
    v.im = radicand.im < 0 ? Real(-height) : height;
    v.re = radicand.im / (2 * v.im);
  }
  v.error = radicand.error - (log2_size(radicand) - 1.5) / 2;
  return rounded(v);
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::other_root(const Number& radicand,
                                                                    int index) {
  if (++num_transcendental_ > most_transcendental_) return std::nullopt;
  const Real modulus = sqrt(Real(radicand.re * radicand.re + radicand.im * radicand.im));
  const Real size = exp(Real(log(modulus) / index));
  Number v;
  if (radicand.im == 0 && radicand.re > 0) {
    v.re = size;
  } else {
    if (++num_transcendental_ > most_transcendental_) return std::nullopt;
    const Real angle = atan2(radicand.im, radicand.re) / index;
    v.re = size * cos(angle);
    v.im = size * sin(angle);
  }
  const double smallest = log2_size(radicand) - 1.5;
  v.error = log2_sum(radicand.error - smallest + log2_size(v) + 1, log2_size(v) - kBits + 24);
  return v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::logarithm(const Number& a) {
  if (++num_transcendental_ > most_transcendental_) return std::nullopt;
  const std::optional<bool> fails = is_zero(a);
  const double smallest = log2_size(a) - 1.5;
  if (!fails || *fails || smallest - 2 < a.error) return std::nullopt;
  Number v;
  v.re = log(Real(a.re * a.re + a.im * a.im)) / 2;
  v.im = a.im == 0 && a.re > 0 ? Real(0) : Real(atan2(a.im, a.re));
  v.error = log2_sum(a.error - smallest + 1, -kBits + 6.0);
  return rounded(v);
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::exponential(const Number& a) {
  constexpr double kLargestExponent = 4096;
  if (++num_transcendental_ > most_transcendental_) return std::nullopt;
  if (abs(a.re) > kLargestExponent || abs(a.im) > kLargestExponent) return std::nullopt;
  Number v;
  const Real modulus = exp(a.re);
  v.re = modulus * cos(a.im);
  v.im = modulus * sin(a.im);
  v.error = log2_of(modulus) + log2_sum(a.error, -kBits + 18.0) + 1;
  return v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::integer_power(const Number& a,
                                                                       int n) const {
  Number v = integer(1);
  for (int i = 0; i < std::abs(n); ++i) v = product(v, a);
  return n < 0 ? quotient(integer(1), v) : v;
}

template <int kBits>
std::optional<ClosedNumber<kBits>> ClosedNumbers<kBits>::power(const Number& a, const Number& b) {
  const bool is_integer = b.im == 0 && abs(b.re) <= kLargestPower && b.re == trunc(b.re);
  if (is_integer) return integer_power(a, b.re.template convert_to<int>());
  const std::optional<Number> log_a = logarithm(a);
  return log_a ? exponential(product(*log_a, b)) : std::nullopt;
}

template class ClosedNumbers<kFewBits>;
template class ClosedNumbers<kManyBits>;
template double log2_size(const ClosedNumber<kFewBits>& v);
template double log2_size(const ClosedNumber<kManyBits>& v);

}  // namespace slime::reward
