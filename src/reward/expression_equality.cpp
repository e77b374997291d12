#include "reward/expression_equality.h"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <complex>
#include <numbers>
#include <variant>

#include "reward/closed_form.h"
#include "reward/expression.h"
#include "reward/generic_point.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

using Kind = ExpressionStep::Kind;
using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;
using Number = std::variant<Rational, double>;
using Complex = std::complex<double>;

constexpr std::size_t kBitLimit = 4096;      // about 1,200 digits
constexpr std::size_t kDigitLimit = 1200;    // of an integer in the text
constexpr int kFactorialLimit = 400;         // 400! has 2,887 bits
constexpr double kTolerance = 1e-9;          // rounding of a few hundred operations
constexpr double kDecimalTolerance = 1e-15;  // decimals cancel exactly or are different

/// Why there is no value: a failure, or an operation that leaves the rational numbers.
enum class NoValue { kFailed, kNotRational };

std::size_t bits(const Integer& value) { return value == 0 ? 0 : msb(abs(value)) + 1; }

bool is_small(const Rational& value) {
  return bits(numerator(value)) <= kBitLimit && bits(denominator(value)) <= kBitLimit;
}

double to_double(const Number& number) {
  const auto* rational = std::get_if<Rational>(&number);
  return rational != nullptr ? rational->convert_to<double>() : std::get<double>(number);
}

bool is_zero(const Number& number) {
  const auto* rational = std::get_if<Rational>(&number);
  return rational != nullptr ? *rational == 0 : std::get<double>(number) == 0;
}

/// A value of the rational machine, or the reason why it stops.
using Outcome = tl::expected<Number, NoValue>;
constexpr auto kFailed = [] { return tl::make_unexpected(NoValue::kFailed); };

Outcome finished(Rational value) {
  if (!is_small(value)) return kFailed();
  return Number(std::move(value));
}

Outcome finished(double value) {
  if (!std::isfinite(value)) return kFailed();
  return Number(value);
}

Integer to_integer(std::string_view digits) {
  digits.remove_prefix(
      std::min(digits.find_first_not_of('0'), digits.size()));  // a leading 0 would mean octal
  return digits.empty() ? Integer(0) : Integer(std::string(digits));
}

template <typename T>
Outcome combine(Kind kind, const T& a, const T& b) {
  if (kind == Kind::kAdd) return finished(T(a + b));
  if (kind == Kind::kSubtract) return finished(T(a - b));
  if (kind == Kind::kMultiply) return finished(T(a * b));
  if (b == 0) return kFailed();
  return finished(T(a / b));
}

Outcome raised(const Number& base, const Number& exponent) {
  const auto* rational = std::get_if<Rational>(&exponent);
  if (rational == nullptr || denominator(*rational) != 1)
    return tl::make_unexpected(NoValue::kNotRational);
  const Integer power = numerator(*rational);
  if (abs(power) > kBitLimit) return kFailed();  // only 0, 1 and -1 would stay small
  const int n = power.convert_to<int>();
  if (n < 0 && is_zero(base)) return kFailed();
  if (const auto* number = std::get_if<double>(&base)) return finished(std::pow(*number, n));
  const auto& fraction = std::get<Rational>(base);
  const std::size_t size = std::max(bits(numerator(fraction)), bits(denominator(fraction)));
  if (size * static_cast<std::size_t>(std::abs(n)) > 2 * kBitLimit) return kFailed();
  const auto magnitude = static_cast<unsigned>(std::abs(n));
  const Integer top = pow(numerator(fraction), magnitude);
  const Integer bottom = pow(denominator(fraction), magnitude);
  return finished(n < 0 ? Rational(bottom, top) : Rational(top, bottom));
}

Outcome factorial(const Number& number) {
  const auto* rational = std::get_if<Rational>(&number);
  if (rational == nullptr || denominator(*rational) != 1 || *rational < 0 ||
      *rational > kFactorialLimit)
    return kFailed();
  Integer product = 1;
  for (int i = 2; i <= numerator(*rational).convert_to<int>(); ++i) product *= i;
  return finished(Rational(product));
}

/// Exact arithmetic, as far as it goes.
Outcome evaluate_rational(const Expression& expression) {
  std::vector<Number> stack;
  for (const ExpressionStep& step : expression) {
    Outcome value = kFailed();
    switch (step.kind) {
      case Kind::kInteger:
        if (step.text.size() > kDigitLimit) return kFailed();
        value = finished(Rational(to_integer(step.text)));
        break;
      case Kind::kDecimal:
        value = finished(to_float(step.text).value_or(INFINITY));
        break;
      case Kind::kAdd:
      case Kind::kSubtract:
      case Kind::kMultiply:
      case Kind::kDivide:
      case Kind::kPower: {
        const Number b = std::move(stack.back());
        stack.pop_back();
        const Number a = std::move(stack.back());
        stack.pop_back();
        if (step.kind == Kind::kPower) {
          value = raised(a, b);
        } else if (std::holds_alternative<Rational>(a) && std::holds_alternative<Rational>(b)) {
          value = combine(step.kind, std::get<Rational>(a), std::get<Rational>(b));
        } else {
          value = combine(step.kind, to_double(a), to_double(b));
        }
        break;
      }
      case Kind::kNegate: {
        const Number a = std::move(stack.back());
        stack.pop_back();
        value = std::visit(
            [](const auto& number) -> Outcome {
              return Number(std::decay_t<decltype(number)>(-number));
            },
            a);
        break;
      }
      case Kind::kFactorial: {
        const Number a = std::move(stack.back());
        stack.pop_back();
        value = factorial(a);
        break;
      }
      case Kind::kSymbol:
      case Kind::kPi:
      case Kind::kSqrt:
      case Kind::kLn:
        return tl::make_unexpected(NoValue::kNotRational);
    }
    if (!value) return value;
    stack.push_back(std::move(*value));
  }
  return std::move(stack.back());
}

/// By repeated multiplication for small integers, so that x^2 is x*x to the last bit.
Complex power(Complex base, Complex exponent) {
  constexpr double kLargestProduct = 64;
  const double n = exponent.real();
  if (exponent.imag() != 0 || n != std::nearbyint(n) || std::abs(n) > kLargestProduct)
    return std::pow(base, exponent);
  Complex product = 1;
  for (int i = 0; i < static_cast<int>(std::abs(n)); ++i) product *= base;
  return n < 0 ? Complex(1) / product : product;
}

/// In double: quick, and enough to tell most expressions apart. Not finite when something fails.
Complex evaluate_complex(const Expression& expression, int point) {
  const Complex failed(NAN, NAN);
  std::vector<Complex> stack;
  const auto pop = [&stack] {
    const Complex value = stack.back();
    stack.pop_back();
    return value;
  };
  for (const ExpressionStep& step : expression) {
    switch (step.kind) {
      case Kind::kInteger:
      case Kind::kDecimal:
        stack.emplace_back(to_float(step.text).value_or(NAN));
        break;
      case Kind::kSymbol:
        stack.push_back(generic_point(step.text, point));
        break;
      case Kind::kPi:
        stack.emplace_back(std::numbers::pi);
        break;
      case Kind::kNegate:
        stack.push_back(-pop());
        break;
      case Kind::kSqrt:
        stack.push_back(std::sqrt(pop()));
        break;
      case Kind::kLn:
        stack.push_back(std::log(pop()));
        break;
      case Kind::kFactorial: {
        const Complex value = pop();
        const double n = value.real();
        if (value.imag() != 0 || n != std::nearbyint(n) || n < 0 || n > 170) return failed;
        stack.emplace_back(std::tgamma(n + 1));
        break;
      }
      default: {
        const Complex b = pop();
        const Complex a = pop();
        if (step.kind == Kind::kAdd) stack.push_back(a + b);
        if (step.kind == Kind::kSubtract) stack.push_back(a - b);
        if (step.kind == Kind::kMultiply) stack.push_back(a * b);
        if (step.kind == Kind::kDivide) stack.push_back(b == Complex(0) ? failed : a / b);
        if (step.kind == Kind::kPower) stack.push_back(power(a, b));
      }
    }
  }
  return stack.back();
}

bool has_decimal(const Expression& expression) {
  return std::any_of(expression.begin(), expression.end(),
                     [](const ExpressionStep& step) { return step.kind == Kind::kDecimal; });
}

bool agree_at_generic_points(const Expression& truth, const Expression& given) {
  const bool is_decimal = has_decimal(truth) || has_decimal(given);
  const double tolerance = is_decimal ? kDecimalTolerance : kTolerance;
  for (int point = 0; point < kNumGenericPoints; ++point) {
    const Complex a = evaluate_complex(truth, point);
    const Complex b = evaluate_complex(given, point);
    // Written so that NaN and infinity are not equal.
    const double scale = std::max({is_decimal ? 0.0 : 1.0, std::abs(a), std::abs(b)});
    if (!(std::abs(a - b) <= tolerance * scale)) return false;
    if (!std::isfinite(std::abs(a)) || !std::isfinite(std::abs(b))) return false;
  }
  // Closed forms that are this near are the same or an approximation of one another.
  return is_decimal || are_equal_closed_forms(truth, given);
}

}  // namespace

bool are_equal_expressions(std::string_view truth, std::string_view given) {
  // One after the other, so that unbalanced parentheses of an answer cannot reach into the truth.
  const std::optional<Expression> a = parse_expression(truth);
  const std::optional<Expression> b = a ? parse_expression(given) : std::nullopt;
  if (!b) return false;
  const Outcome left = evaluate_rational(*a);
  if (!left && left.error() == NoValue::kFailed) return false;
  const Outcome right = evaluate_rational(*b);
  if (!right && right.error() == NoValue::kFailed) return false;
  if (!left || !right) return agree_at_generic_points(*a, *b);
  if (std::holds_alternative<Rational>(*left) && std::holds_alternative<Rational>(*right)) {
    return std::get<Rational>(*left) == std::get<Rational>(*right);
  }
  return to_double(*left) == to_double(*right);
}

}  // namespace slime::reward
