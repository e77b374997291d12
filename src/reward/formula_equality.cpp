#include "reward/formula_equality.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "reward/calculus_classes.h"
#include "reward/formula_value.h"
#include "reward/generic_point.h"

namespace slime::reward {
namespace {

constexpr std::size_t kMostNodes = 3'000;
constexpr int kMostTranscendentalAtAPoint = 64;
constexpr int kIntegerPoints = 7;
constexpr int kFewestIntegerPoints = 3;

bool is_in(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Values that no root of an integer polynomial has.
bool is_transcendental_node(const Formula& node) {
  if (node.kind == FormulaKind::kE) return true;
  if (node.kind == FormulaKind::kFunction) {
    return !is_in(node.text, {"floor", "ceil", "abs", "factorial", "binom", "permutations", "mod",
                              "gcd", "lcm", "max", "min", "degree"});
  }
  if (node.kind != FormulaKind::kPower) return false;
  // Rational exponents are roots.
  return any_node(node.args[1], [](const Formula& part) {
    return part.kind != FormulaKind::kNumber && part.kind != FormulaKind::kNegative &&
           part.kind != FormulaKind::kInverse && part.kind != FormulaKind::kProduct &&
           part.kind != FormulaKind::kSum;
  });
}

bool has_symbol(const Formula& formula) {
  return any_node(formula, [](const Formula& node) { return node.kind == FormulaKind::kSymbol; });
}

/// Functions of whole numbers, of a symbol.
bool is_discrete_node(const Formula& node) {
  if (node.kind == FormulaKind::kSeries)
    return has_symbol(node.args[1]) || has_symbol(node.args[2]);
  return node.kind == FormulaKind::kFunction && has_symbol(node) &&
         is_in(node.text, {"floor", "ceil", "factorial", "binom", "permutations", "mod", "gcd",
                           "lcm", "max", "min"});
}

bool is_real_node(const Formula& node) {
  return node.kind == FormulaKind::kFunction && node.text == "abs" && has_symbol(node);
}

bool is_infinity(const Formula& node) { return node.kind == FormulaKind::kInfinity; }
bool is_either(const Formula& node) { return node.kind == FormulaKind::kEither; }

/// Digits count for what they can encode, other nodes for more than they do.
double information(const Formula& formula) {
  double bits =
      formula.kind == FormulaKind::kNumber ? 4.0 * static_cast<double>(formula.text.size()) : 8;
  for (const Formula& arg : formula.args) bits += information(arg);
  return bits;
}

/// Both sides at one point; the difference is 0, is not, or is undecided.
template <int kBits>
std::optional<bool> agree_with_bits(const Formula& a, const Formula& b, int point,
                                    SymbolValues symbols,
                                    const std::map<std::string, int64_t>& integers,
                                    GradingBudget& budget) {
  const bool is_transcendental =
      any_node(a, is_transcendental_node) || any_node(b, is_transcendental_node);
  using Numbers = ClosedNumbers<kBits>;
  Numbers numbers(point, is_transcendental, 64 + information(a) + information(b),
                  kMostTranscendentalAtAPoint);
  FormulaEvaluation<kBits> evaluation(numbers, symbols, integers, budget);
  std::optional<FormulaValue<kBits>> left = evaluation.value(a);
  std::optional<FormulaValue<kBits>> right = left ? evaluation.value(b) : std::nullopt;
  if (!right) return std::nullopt;
  if (left->exact && right->exact) return *left->exact == *right->exact;
  return numbers.is_zero(Numbers::sum(left->as_closed(), right->as_closed(), -1));
}

std::optional<bool> agree_at(const Formula& a, const Formula& b, int point, SymbolValues symbols,
                             const std::map<std::string, int64_t>& integers,
                             GradingBudget& budget) {
  const auto agree = agree_with_bits<kFewBits>(a, b, point, symbols, integers, budget);
  if (agree) return agree;
  budget.transcendental -= 20;  // they cost more in the higher precision
  return agree_with_bits<kManyBits>(a, b, point, symbols, integers, budget);
}

bool agree_at_integers(const Formula& a, const Formula& b, GradingBudget& budget) {
  std::set<std::string> names;
  for (const Formula* side : {&a, &b}) {
    for (std::string& name : symbols_of(*side)) names.insert(std::move(name));
  }
  int num_agreeing = 0;
  for (int point = 0; point < kIntegerPoints; ++point) {
    std::map<std::string, int64_t> integers;
    int64_t index = 0;
    for (const std::string& name : names) {
      integers[name] = 3 + (11 * point + index * (2 * point + 5)) % 17;
      ++index;
    }
    const auto agree = agree_at(a, b, 0, SymbolValues::kInteger, integers, budget);
    if (!agree) continue;  // a factorial of a negative number, say
    if (!*agree) return false;
    ++num_agreeing;
  }
  return num_agreeing >= kFewestIntegerPoints;
}

std::optional<double> value_with(const Formula& formula,
                                 const std::map<std::string, int64_t>& integers,
                                 GradingBudget& budget) {
  if (--budget.comparisons < 0 || size_of(formula) > kMostNodes) return std::nullopt;
  ClosedNumbers<kFewBits> numbers(0, true, 64 + information(formula), kMostTranscendentalAtAPoint);
  FormulaEvaluation<kFewBits> evaluation(numbers, SymbolValues::kInteger, integers, budget);
  std::optional<FormulaValue<kFewBits>> value = evaluation.value(formula);
  if (!value) return std::nullopt;
  if (value->exact) return value->exact->convert_to<double>();
  const auto re = value->closed.re.convert_to<double>();
  const auto im = value->closed.im.convert_to<double>();
  if (std::abs(im) > 1e-12 * std::max(1.0, std::abs(re))) return std::nullopt;
  return re;
}

}  // namespace

bool are_equal_formulas(const Formula& a, const Formula& b, GradingBudget& budget) {
  if (any_node(a, is_calculus_node) || any_node(b, is_calculus_node)) {
    if (size_of(a) > kMostNodes || size_of(b) > kMostNodes) return false;
    CalculusClasses classes([&budget](const Formula& left, const Formula& right) {
      return are_equal_formulas(left, right, budget);
    });
    const Formula left = classes.abstracted(a);
    return are_equal_formulas(left, classes.abstracted(b), budget);
  }
  if (--budget.comparisons < 0) return false;
  if (size_of(a) > kMostNodes || size_of(b) > kMostNodes) return false;
  if (any_node(a, is_either) || any_node(b, is_either)) return false;
  if (shape_of(a) == shape_of(b)) return true;
  if (any_node(a, is_infinity) || any_node(b, is_infinity)) return false;
  if (any_node(a, is_discrete_node) || any_node(b, is_discrete_node))
    return agree_at_integers(a, b, budget);
  const bool is_real = any_node(a, is_real_node) || any_node(b, is_real_node);
  const bool has_variable =
      has_symbol(a) || has_symbol(b) ||
      any_node(a, [](const Formula& n) { return n.kind == FormulaKind::kPi; }) ||
      any_node(b, [](const Formula& n) { return n.kind == FormulaKind::kPi; });
  const int num_points = has_variable ? kNumGenericPoints : 1;
  for (int point = 0; point < num_points; ++point) {
    const auto agree =
        agree_at(a, b, point, is_real ? SymbolValues::kReal : SymbolValues::kComplex, {}, budget);
    if (!agree.value_or(false)) return false;
  }
  return true;
}

bool is_zero_formula(const Formula& formula, GradingBudget& budget) {
  return are_equal_formulas(formula, number_formula("0"), budget);
}

std::optional<double> real_value(const Formula& formula, GradingBudget& budget) {
  if (!symbols_of(formula).empty()) return std::nullopt;
  return value_with(formula, {}, budget);
}

std::optional<double> sample_value(const Formula& formula, GradingBudget& budget) {
  std::map<std::string, int64_t> integers;
  int64_t next = 3;
  for (const std::string& name : symbols_of(formula)) {
    integers[name] = next;
    next += 4;
  }
  return value_with(formula, integers, budget);
}

}  // namespace slime::reward
