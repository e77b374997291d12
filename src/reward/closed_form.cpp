#include "reward/closed_form.h"

#include <algorithm>
#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "reward/generic_point.h"

namespace slime::reward {
namespace {

namespace mp = boost::multiprecision;
using Kind = ExpressionStep::Kind;

constexpr int kBits = 2048;
using Real = mp::number<mp::cpp_bin_float<kBits, mp::digit_base_2>, mp::et_off>;

constexpr std::size_t kDigitLimit = 600;  // 1,994 bits: integers are exact
constexpr std::size_t kMostRoots = 10;    // the degree of the number is 2 to this power
constexpr int kMostTranscendental = 8;    // each costs a millisecond or two
constexpr int kLargestPower = 64;
constexpr int kLargestFactorial = 170;  // 1,024 bits
constexpr double kBitsPerCharacter = 8;
constexpr double kNothing = -1e300;  // log2 of an error that is 0

/// A complex number with what is known about it; all bounds as log2.
struct Value {
  Real re = 0;
  Real im = 0;
  double error = kNothing;  // of the absolute error
  /// The number is U / L with algebraic integers U and L; no conjugate of U exceeds `numerator`,
  /// none of L `denominator`.
  double numerator = 0;
  double denominator = 0;
};

/// log2 of |x|, rounded up.
double log2_of(const Real& x) {
  return x == 0 ? kNothing : static_cast<double>(x.backend().exponent()) + 1;
}

/// At least log2 of |v|, at most one and a half more.
double size_of(const Value& v) { return std::max(log2_of(v.re), log2_of(v.im)) + 0.5; }

double log2_sum(double a, double b) {
  const double larger = std::max(a, b);
  return larger == kNothing ? kNothing : larger + std::log2(1 + std::exp2(std::min(a, b) - larger));
}

/// Adds the rounding of a few operations whose results are of the size of `v`.
Value rounded(Value v) {
  const double size = size_of(v);
  if (size > kNothing / 2) v.error = log2_sum(v.error, size - kBits + 4);
  return v;
}

Value integer(const Real& number) {
  Value v;
  v.re = number;
  v.numerator = std::max(0.0, log2_of(number));
  return v;
}

/// What one evaluation at one point needs to remember.
class Evaluation {
 public:
  Evaluation(int point, bool is_transcendental, double text_bits)
      : point_(point), is_transcendental_(is_transcendental), text_bits_(text_bits) {}

  /// Nothing: it has no value, or none that can be decided.
  std::optional<Value> evaluate(const Expression& expression) {
    std::vector<Value> stack;
    const auto pop = [&stack] {
      Value value = std::move(stack.back());
      stack.pop_back();
      return value;
    };
    for (const ExpressionStep& step : expression) {
      std::optional<Value> value;
      switch (step.kind) {
        case Kind::kInteger:
          if (step.text.size() <= kDigitLimit) value = integer(digits(step.text));
          break;
        case Kind::kDecimal:
          break;
        case Kind::kSymbol:
          value = symbol(step.text);
          break;
        case Kind::kPi:
          value = pi();
          break;
        case Kind::kNegate:
          value = pop();
          value->re = -value->re;
          value->im = -value->im;
          break;
        case Kind::kSqrt:
          value = root(pop());
          break;
        case Kind::kLn:
          value = logarithm(pop());
          break;
        case Kind::kFactorial:
          value = factorial(pop());
          break;
        default: {
          const Value b = pop();
          const Value a = pop();
          value = step.kind == Kind::kAdd        ? sum(a, b, 1)
                  : step.kind == Kind::kSubtract ? sum(a, b, -1)
                  : step.kind == Kind::kMultiply ? product(a, b)
                  : step.kind == Kind::kDivide   ? quotient(a, b)
                                                 : power(a, b);
        }
      }
      if (!value) return std::nullopt;
      stack.push_back(std::move(*value));
    }
    return std::move(stack.back());
  }

  Value difference(const Value& a, const Value& b) const { return sum(a, b, -1); }

  /// Whether the number is 0; nothing when the precision does not tell.
  std::optional<bool> is_zero(const Value& v) const {
    const double size = size_of(v);
    if (size - 1.5 > v.error) return false;
    const double degree = std::exp2(static_cast<double>(roots_.size()) + (uses_symbols_ ? 1 : 0));
    const double bound =
        is_transcendental_ ? text_bits_ : (degree - 1) * v.numerator + v.denominator;
    if (log2_sum(size, v.error) < -bound) return true;
    return std::nullopt;
  }

 private:
  struct Root {
    Value radicand;
    Value value;
  };

  static Real digits(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
    return text.empty() ? Real(0) : Real(std::string(text));
  }

  /// A multiple of 2^-16.
  Value generic(double re, double im) {
    constexpr double kParts = 65536;
    Value v;
    v.re = Real(std::nearbyint(re * kParts)) / kParts;
    v.im = Real(std::nearbyint(im * kParts)) / kParts;
    v.numerator = std::log2((std::abs(re) + std::abs(im)) * kParts + 2);
    v.denominator = 16;
    return v;
  }

  Value symbol(std::string_view name) {
    uses_symbols_ = true;
    const std::complex<double> at = generic_point(name, point_);
    return generic(at.real(), at.imag());
  }

  Value pi() {
    if (!is_transcendental_) return generic(3 + std::abs(generic_point("pi", point_)) / 8, 0);
    Value v;
    v.re = boost::math::constants::pi<Real>();
    return rounded(v);
  }

  static Value sum(const Value& a, const Value& b, int sign) {
    Value v;
    v.re = sign > 0 ? a.re + b.re : a.re - b.re;
    v.im = sign > 0 ? a.im + b.im : a.im - b.im;
    v.error = log2_sum(a.error, b.error);
    v.numerator = log2_sum(a.numerator + b.denominator, a.denominator + b.numerator);
    v.denominator = a.denominator + b.denominator;
    return rounded(v);
  }

  static Value product(const Value& a, const Value& b) {
    Value v;
    v.re = a.re * b.re - a.im * b.im;
    v.im = a.re * b.im + a.im * b.re;
    v.error = log2_sum(log2_sum(size_of(a) + b.error, size_of(b) + a.error), a.error + b.error);
    // Two products may cancel, so the rounding is of their size.
    v.error = log2_sum(v.error, size_of(a) + size_of(b) - kBits + 4);
    v.numerator = a.numerator + b.numerator;
    v.denominator = a.denominator + b.denominator;
    return v;
  }

  std::optional<Value> quotient(const Value& a, const Value& b) const {
    const std::optional<bool> fails = is_zero(b);
    if (!fails || *fails) return std::nullopt;
    const Real norm = b.re * b.re + b.im * b.im;
    const double smallest = size_of(b) - 1.5;  // log2 of a lower bound of |b|
    if (smallest - 2 < b.error) return std::nullopt;
    Value v;
    v.re = (a.re * b.re + a.im * b.im) / norm;
    v.im = (a.im * b.re - a.re * b.im) / norm;
    v.error = log2_sum(a.error - smallest, size_of(a) + b.error - 2 * smallest) + 2;
    v.error = log2_sum(v.error, size_of(a) - smallest - kBits + 6);
    v.numerator = a.numerator + b.denominator;
    v.denominator = a.denominator + b.numerator;
    return v;
  }

  std::optional<Value> root(const Value& radicand) {
    for (const Root& known : roots_) {
      if (known.radicand.re == radicand.re && known.radicand.im == radicand.im) return known.value;
    }
    if (roots_.size() == kMostRoots) return std::nullopt;
    const std::optional<bool> is_nothing = is_zero(radicand);
    if (!is_nothing) return std::nullopt;
    if (*is_nothing) return Value();
    const double smallest = size_of(radicand) - 1.5;
    if (smallest - 2 < radicand.error) return std::nullopt;
    Value v;
    const Real modulus = sqrt(Real(radicand.re * radicand.re + radicand.im * radicand.im));
    if (radicand.re >= 0) {
      v.re = sqrt(Real((modulus + radicand.re) / 2));
      v.im = radicand.im / (2 * v.re);
    } else {
      const Real height = sqrt(Real((modulus - radicand.re) / 2));
      v.im = radicand.im < 0 ? Real(-height) : height;
      v.re = radicand.im / (2 * v.im);
    }
    v.error = radicand.error - smallest / 2;
    v = rounded(v);
    if (radicand.numerator >= radicand.denominator) {
      v.numerator = (radicand.numerator + radicand.denominator) / 2;
      v.denominator = radicand.denominator;
    } else {
      v.numerator = radicand.numerator;
      v.denominator = (radicand.numerator + radicand.denominator) / 2;
    }
    roots_.push_back({radicand, v});
    return v;
  }

  std::optional<Value> logarithm(const Value& a) {
    if (++num_transcendental_ > kMostTranscendental) return std::nullopt;
    const std::optional<bool> fails = is_zero(a);
    const double smallest = size_of(a) - 1.5;
    if (!fails || *fails || smallest - 2 < a.error) return std::nullopt;
    Value v;
    v.re = log(Real(a.re * a.re + a.im * a.im)) / 2;
    v.im = a.im == 0 && a.re > 0 ? Real(0) : Real(atan2(a.im, a.re));
    v.error = log2_sum(a.error - smallest + 1, -kBits + 6.0);
    return rounded(v);
  }

  std::optional<Value> exponential(const Value& a) const {
    constexpr double kLargestExponent = 4096;
    if (abs(a.re) > kLargestExponent || abs(a.im) > kLargestExponent) return std::nullopt;
    Value v;
    const Real modulus = exp(a.re);
    v.re = modulus * cos(a.im);
    v.im = modulus * sin(a.im);
    v.error = log2_of(modulus) + log2_sum(a.error, -kBits + 18.0) + 1;
    return v;
  }

  std::optional<Value> power(const Value& a, const Value& b) {
    const bool is_integer = b.im == 0 && abs(b.re) <= kLargestPower && b.re == trunc(b.re);
    if (!is_integer) {
      const std::optional<Value> log_a = logarithm(a);
      return log_a ? exponential(product(*log_a, b)) : std::nullopt;
    }
    const int n = b.re.convert_to<int>();
    Value v = integer(1);
    for (int i = 0; i < std::abs(n); ++i) v = product(v, a);
    return n < 0 ? quotient(integer(1), v) : v;
  }

  std::optional<Value> factorial(const Value& a) const {
    if (a.im != 0 || a.re < 0 || a.re > kLargestFactorial || a.re != trunc(a.re))
      return std::nullopt;
    Real value = 1;
    for (int i = 2; i <= a.re.convert_to<int>(); ++i) value *= i;
    return integer(value);
  }

  const int point_;
  const bool is_transcendental_;
  const double text_bits_;
  std::vector<Root> roots_;  // all of them, of both sides
  bool uses_symbols_ = false;
  int num_transcendental_ = 0;
};

/// Logarithms, and powers whose exponent is not an integer literal.
bool has_transcendental(const Expression& expression) {
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i].kind == Kind::kLn) return true;
    if (expression[i].kind != Kind::kPower) continue;
    const bool negates = expression[i - 1].kind == Kind::kNegate;
    if (expression[negates ? i - 2 : i - 1].kind != Kind::kInteger) return true;
  }
  return false;
}

bool has_symbol_or_pi(const Expression& expression) {
  return std::any_of(expression.begin(), expression.end(), [](const ExpressionStep& step) {
    return step.kind == Kind::kSymbol || step.kind == Kind::kPi;
  });
}

double text_bits(const Expression& expression) {
  double characters = 0;
  for (const ExpressionStep& step : expression)
    characters += static_cast<double>(std::max<std::size_t>(step.text.size(), 1));
  return kBitsPerCharacter * characters;
}

}  // namespace

bool are_equal_closed_forms(const Expression& left, const Expression& right) {
  const bool is_transcendental = has_transcendental(left) || has_transcendental(right);
  const double bits = 64 + text_bits(left) + text_bits(right);
  const int num_points = has_symbol_or_pi(left) || has_symbol_or_pi(right) ? kNumGenericPoints : 1;
  for (int point = 0; point < num_points; ++point) {
    Evaluation at(point, is_transcendental, bits);
    const std::optional<Value> a = at.evaluate(left);
    const std::optional<Value> b = a ? at.evaluate(right) : std::nullopt;
    if (!b || !at.is_zero(at.difference(*a, *b)).value_or(false)) return false;
  }
  return true;
}

}  // namespace slime::reward
