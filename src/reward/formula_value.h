#pragma once

/// Evaluation of a formula at one point: exactly as long as the value is rational, then as a closed
/// number.

#include <map>
#include <optional>
#include <string>

#include "reward/closed_number.h"
#include "reward/formula_equality.h"

namespace slime::reward {

/// A value; `closed` is made from `exact` when it is needed.
template <int kBits>
struct FormulaValue {
  std::optional<boost::multiprecision::cpp_rational> exact;
  ClosedNumber<kBits> closed;

  const ClosedNumber<kBits>& as_closed() {
    if (exact) {
      closed = ClosedNumbers<kBits>::rational(*exact);
      exact.reset();
    }
    return closed;
  }
};

/// What symbols stand for.
enum class SymbolValues { kComplex, kReal, kInteger };

template <int kBits>
class FormulaEvaluation {
 public:
  using Value = FormulaValue<kBits>;
  using Numbers = ClosedNumbers<kBits>;
  using Number = ClosedNumber<kBits>;

  /// `integers`: values of symbols with SymbolValues::kInteger.
  FormulaEvaluation(Numbers& numbers, SymbolValues symbols, std::map<std::string, int64_t> integers,
                    GradingBudget& budget)
      : numbers_(numbers), symbols_(symbols), integers_(std::move(integers)), budget_(budget) {}

  /// Nothing: it has no value, or one beyond the limits.
  std::optional<Value> value(const Formula& formula);

 private:
  using Rational = boost::multiprecision::cpp_rational;
  using Integer = boost::multiprecision::cpp_int;
  using Maybe = std::optional<Value>;

  Maybe exact(Rational number);
  bool spends(const Rational& a, const Rational& b);
  Maybe sum(Value a, Value b);
  Maybe product(Value a, Value b);
  Maybe negative(Value a);
  Maybe inverse(Value a);
  Maybe power(const Formula& base, const Formula& exponent);
  Maybe whole_power(const Value& base, const Integer& exponent);
  Maybe root(Value radicand, const Integer& index);
  Maybe function(const Formula& formula);
  Maybe integer_function(const std::string& name, const std::vector<Value>& args);
  Maybe rounded_down(Value a, bool is_up);
  Maybe absolute(Value a);
  Maybe series(const Formula& formula);
  Maybe circular(const std::string& name, Value a);
  Maybe closed(std::optional<Number> number);
  std::optional<Integer> whole(const Formula& formula);

  Numbers& numbers_;
  const SymbolValues symbols_;
  std::map<std::string, int64_t> integers_;
  GradingBudget& budget_;
};

}  // namespace slime::reward
