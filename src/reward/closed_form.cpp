#include "reward/closed_form.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "reward/closed_number.h"
#include "reward/generic_point.h"

namespace slime::reward {
namespace {

using Kind = ExpressionStep::Kind;

using Numbers = ClosedNumbers<kManyBits>;
using Number = Numbers::Number;
using Real = Numbers::Real;

constexpr std::size_t kDigitLimit = 600;  // 1,994 bits: integers are exact
constexpr int kMostTranscendental = 16;   // each costs a millisecond or two
constexpr int kLargestFactorial = 170;    // 1,024 bits
constexpr double kBitsPerCharacter = 8;

Real digits(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  return text.empty() ? Real(0) : Real(std::string(text));
}

std::optional<Number> factorial(const Number& a) {
  if (a.im != 0 || a.re < 0 || a.re > kLargestFactorial || a.re != trunc(a.re)) return std::nullopt;
  Real value = 1;
  for (int i = 2; i <= a.re.convert_to<int>(); ++i) value *= i;
  return Numbers::integer(value);
}

/// Nothing: it has no value, or none that can be decided.
std::optional<Number> evaluate(const Expression& expression, Numbers& at) {
  std::vector<Number> stack;
  const auto pop = [&stack] {
    Number value = std::move(stack.back());
    stack.pop_back();
    return value;
  };
  for (const ExpressionStep& step : expression) {
    std::optional<Number> value;
    switch (step.kind) {
      case Kind::kInteger:
        if (step.text.size() <= kDigitLimit) value = Numbers::integer(digits(step.text));
        break;
      case Kind::kDecimal:
        break;
      case Kind::kSymbol:
        value = at.symbol(step.text);
        break;
      case Kind::kPi:
        value = at.pi();
        break;
      case Kind::kNegate:
        value = pop();
        value->re = -value->re;
        value->im = -value->im;
        break;
      case Kind::kSqrt:
        value = at.root(pop());
        break;
      case Kind::kLn:
        value = at.logarithm(pop());
        break;
      case Kind::kFactorial:
        value = factorial(pop());
        break;
      default: {
        const Number b = pop();
        const Number a = pop();
        value = step.kind == Kind::kAdd        ? Numbers::sum(a, b, 1)
                : step.kind == Kind::kSubtract ? Numbers::sum(a, b, -1)
                : step.kind == Kind::kMultiply ? Numbers::product(a, b)
                : step.kind == Kind::kDivide   ? at.quotient(a, b)
                                               : at.power(a, b);
      }
    }
    if (!value) return std::nullopt;
    stack.push_back(std::move(*value));
  }
  return std::move(stack.back());
}

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
    Numbers at(point, is_transcendental, bits, kMostTranscendental);
    const std::optional<Number> a = evaluate(left, at);
    const std::optional<Number> b = a ? evaluate(right, at) : std::nullopt;
    if (!b || !at.is_zero(Numbers::sum(*a, *b, -1)).value_or(false)) return false;
  }
  return true;
}

}  // namespace slime::reward
