#include "reward/answer_comparison.h"

#include <algorithm>

namespace slime::reward {
namespace {

bool is_infinite(const Formula& formula) { return formula.kind == FormulaKind::kInfinity; }
bool is_minus_infinite(const Formula& formula) {
  return formula.kind == FormulaKind::kNegative && formula.args[0].kind == FormulaKind::kInfinity;
}

}  // namespace

bool Comparison::same_relations(const Answer& a, const Answer& b, int depth) {
  const auto domain_a = membership(a);
  const auto domain_b = membership(b);
  if (domain_a && domain_b) return equal(*domain_a, *domain_b, depth);
  if (domain_a && b.kind != AnswerKind::kRelation) return equal(*domain_a, b, depth);
  if (domain_b && a.kind != AnswerKind::kRelation) return equal(a, *domain_b, depth);
  if (a.kind != AnswerKind::kRelation || b.kind != AnswerKind::kRelation) return false;
  if (same_congruences(a, b)) return true;
  const auto side_a = one_sided(a);
  const auto side_b = one_sided(b);
  if (!side_a || !side_b || side_a->sign != side_b->sign) return false;
  if (symbols_of(side_a->formula) != symbols_of(side_b->formula)) return false;
  if (symbols_of(side_a->formula).empty()) return false;
  if (is_zero_formula(side_a->formula, budget_) || is_zero_formula(side_b->formula, budget_))
    return false;
  // The quotient of both is a constant: F(x) G(y) = F(y) G(x).
  const Formula left = binary(FormulaKind::kProduct, side_a->formula, renamed(side_b->formula));
  const Formula right = binary(FormulaKind::kProduct, renamed(side_a->formula), side_b->formula);
  if (!are_equal_formulas(left, right, budget_)) return false;
  if (side_a->sign == "=" || side_a->sign == "\\ne") return true;
  const auto value_a = sample_value(side_a->formula, budget_);
  const auto value_b = sample_value(side_b->formula, budget_);
  return value_a && value_b && *value_a * *value_b > 0;
}

std::optional<Answer> Comparison::membership(const Answer& answer) {
  if (answer.kind != AnswerKind::kRelation || answer.parts.size() != 2 || answer.signs[0] != "\\in")
    return std::nullopt;
  return answer.parts[1];
}

bool Comparison::same_congruences(const Answer& a, const Answer& b) {
  const auto residue = [](const Answer& of) {
    return of.parts.size() == 2 && of.signs[0] == "\\equiv" &&
           of.parts[1].kind == AnswerKind::kResidue && is_plain(of.parts[0]);
  };
  return residue(a) && residue(b) &&
         are_equal_formulas(a.parts[0].formula, b.parts[0].formula, budget_) &&
         same_residues(a.parts[1], b.parts[1]);
}

std::optional<Comparison::OneSided> Comparison::one_sided(const Answer& relation) {
  if (relation.parts.size() != 2) return std::nullopt;
  return one_sided(relation.parts[0], relation.signs[0], relation.parts[1]);
}

std::optional<Comparison::OneSided> Comparison::one_sided(const Answer& left,
                                                          const std::string& sign,
                                                          const Answer& right) {
  if (!is_plain(left) || !is_plain(right)) return std::nullopt;
  if (sign == "=" || sign == "\\ne" || sign == ">" || sign == "\\ge")
    return OneSided{difference_of(left.formula, right.formula), sign};
  if (sign == "<") return OneSided{difference_of(right.formula, left.formula), ">"};
  if (sign == "\\le") return OneSided{difference_of(right.formula, left.formula), "\\ge"};
  return std::nullopt;
}

bool Comparison::is_sided(const Answer& answer) {
  switch (answer.kind) {
    case AnswerKind::kOperation:
    case AnswerKind::kBuilder:
      return true;
    case AnswerKind::kNumbers:
      return answer.text == "\\reals";
    case AnswerKind::kRelation:
      return std::ranges::all_of(answer.signs, [](const std::string& sign) {
        return sign == "<" || sign == ">" || sign == "\\le" || sign == "\\ge" || sign == "\\ne";
      });
    case AnswerKind::kList:
      return std::ranges::all_of(answer.parts, [this](const Answer& part) {
        return part.kind == AnswerKind::kRelation && is_sided(part);
      });
    case AnswerKind::kTuple:
      return answer.open == "[" || answer.close == "]";
    default:
      return false;
  }
}

std::optional<std::pair<RealSet, RealSet>> Comparison::both_sets(const Answer& a, const Answer& b) {
  std::optional<RealSet> left = to_set(a, 0);
  std::optional<RealSet> right = left ? to_set(b, 0) : std::nullopt;
  if (!right) return std::nullopt;
  return std::pair{std::move(*left), std::move(*right)};
}

std::optional<RealSet> Comparison::to_set(const Answer& answer, int depth) {
  if (depth > kDeepestComparison || --budget_.comparisons < 0) return std::nullopt;
  switch (answer.kind) {
    case AnswerKind::kNumbers:
      return answer.text == "\\reals" ? std::optional(all_reals()) : std::nullopt;
    case AnswerKind::kTuple:
      return interval_of(answer);
    case AnswerKind::kSet: {
      RealSet all;
      for (const Answer& part : answer.parts) {
        if (!is_plain(part)) return std::nullopt;
        const auto point = interval(part.formula, true, part.formula, true, budget_);
        if (!point) return std::nullopt;
        all = combined(all, *point, SetOperation::kUnion, budget_);
      }
      return all;
    }
    case AnswerKind::kOperation: {
      const auto left = to_set(answer.parts[0], depth + 1);
      const auto right = left ? to_set(answer.parts[1], depth + 1) : std::nullopt;
      if (!right) return std::nullopt;
      return combined(*left, *right,
                      answer.text == "\\cup"   ? SetOperation::kUnion
                      : answer.text == "\\cap" ? SetOperation::kIntersection
                                               : SetOperation::kDifference,
                      budget_);
    }
    case AnswerKind::kBuilder:
      return to_set(answer.parts[1], depth + 1);
    case AnswerKind::kRelation:
      return solutions(answer, depth);
    case AnswerKind::kList: {
      std::optional<RealSet> all;
      for (std::size_t i = 0; i < answer.parts.size(); ++i) {
        if (is_domain(answer.parts[i])) continue;
        if (answer.parts[i].kind != AnswerKind::kRelation) return std::nullopt;
        const auto one = to_set(answer.parts[i], depth + 1);
        if (!one) return std::nullopt;
        if (!all) {
          all = one;
          continue;
        }
        const std::string sign = i > 0 && i - 1 < answer.signs.size() ? answer.signs[i - 1] : "";
        const RealSet both = combined(*all, *one, SetOperation::kIntersection, budget_);
        // A comma joins what can hold at once: x > 1, x < 3, but x < -1, x > 1.
        const bool joins = sign == "and" || (sign == "," && !are_equal_sets(both, {}, budget_));
        all = joins ? both : combined(*all, *one, SetOperation::kUnion, budget_);
      }
      return all;
    }
    default:
      return std::nullopt;
  }
}

std::optional<RealSet> Comparison::interval_of(const Answer& tuple) {
  if (tuple.parts.size() != 2 || !is_plain(tuple.parts[0]) || !is_plain(tuple.parts[1]))
    return std::nullopt;
  const Formula& low = tuple.parts[0].formula;
  const Formula& high = tuple.parts[1].formula;
  const bool is_from = is_minus_infinite(low);
  const bool is_to = is_infinite(high);
  return interval(is_from ? std::nullopt : std::optional(low), tuple.open == "[",
                  is_to ? std::nullopt : std::optional(high), tuple.close == "]", budget_);
}

std::optional<RealSet> Comparison::solutions(const Answer& chain, int depth) {
  if (chain.signs[0] == "\\in") {
    return chain.parts.size() == 2 ? to_set(chain.parts[1], depth + 1) : std::nullopt;
  }
  RealSet all = all_reals();
  for (std::size_t i = 0; i < chain.signs.size(); ++i) {
    const auto one = solutions(chain.parts[i], chain.signs[i], chain.parts[i + 1]);
    if (!one) return std::nullopt;
    all = combined(all, *one, SetOperation::kIntersection, budget_);
  }
  return all;
}

std::optional<RealSet> Comparison::solutions(const Answer& left, const std::string& sign,
                                             const Answer& right) {
  // -\infty < x and x < \infty say nothing.
  if (is_plain(left) && is_plain(right) && sign == "<" &&
      (is_minus_infinite(left.formula) || is_infinite(right.formula))) {
    return all_reals();
  }
  const auto side = one_sided(left, sign, right);
  if (!side) return std::nullopt;
  if (const auto both = bounded_size(left, sign, right)) return both;
  const std::vector<std::string> names = symbols_of(side->formula);
  if (names.size() != 1) return std::nullopt;
  const auto at = [&](const char* number) {
    return substituted(side->formula, names[0], number_formula(number));
  };
  const Formula zero = at("0");
  const Formula slope = difference_of(at("1"), zero);
  const Formula line = binary(FormulaKind::kSum,
                              binary(FormulaKind::kProduct, slope, symbol_formula(names[0])), zero);
  if (!are_equal_formulas(side->formula, line, budget_)) return std::nullopt;
  const std::optional<double> rises = real_value(slope, budget_);
  if (!rises || *rises == 0) return std::nullopt;
  const Formula end = unary(FormulaKind::kNegative, quotient_of(zero, slope));
  const auto point = interval(end, true, end, true, budget_);
  if (!point || side->sign == "=") return point;
  if (side->sign == "\\ne")
    return combined(all_reals(), *point, SetOperation::kDifference, budget_);
  const bool has_end = side->sign == "\\ge";
  return *rises > 0 ? interval(end, has_end, std::nullopt, false, budget_)
                    : interval(std::nullopt, false, end, has_end, budget_);
}

std::optional<RealSet> Comparison::bounded_size(const Answer& left, const std::string& sign,
                                                const Answer& right) {
  const auto is_size = [](const Answer& side) {
    return side.formula.kind == FormulaKind::kFunction && side.formula.text == "abs" &&
           !symbols_of(side.formula).empty();
  };
  if (is_size(right) && !is_size(left)) {
    const std::string turned = sign == "<"      ? ">"
                               : sign == ">"    ? "<"
                               : sign == "\\le" ? "\\ge"
                               : sign == "\\ge" ? "\\le"
                                                : sign;
    return is_size(left) ? std::nullopt : bounded_size(right, turned, left);
  }
  if (!is_size(left) || is_size(right)) return std::nullopt;
  const Answer inside = answer_of(left.formula.args[0]);
  const Answer minus = answer_of(unary(FormulaKind::kNegative, right.formula));
  const bool is_inner = sign == "<" || sign == "\\le";
  const std::string turned = sign == "<"      ? ">"
                             : sign == "\\le" ? "\\ge"
                             : sign == ">"    ? "<"
                             : sign == "\\ge" ? "\\le"
                                              : sign;
  const auto one = solutions(inside, sign, right);
  const auto other = one ? solutions(inside, turned, minus) : std::nullopt;
  if (!other) return std::nullopt;
  return combined(*one, *other,
                  is_inner || sign == "\\ne" ? SetOperation::kIntersection : SetOperation::kUnion,
                  budget_);
}

bool Comparison::same_builders(const Answer& a, const Answer& b, int depth) {
  return a.kind == b.kind && equal(a.parts[0], b.parts[0], depth) &&
         equal(a.parts[1], b.parts[1], depth);
}

}  // namespace slime::reward
