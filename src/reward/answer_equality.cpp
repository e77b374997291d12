#include "reward/answer_equality.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "reward/answer.h"
#include "reward/formula_equality.h"
#include "reward/python_text.h"
#include "reward/real_set.h"

namespace slime::reward {
namespace {

using AnswerKind = Answer::Kind;
using FormulaKind = Formula::Kind;

constexpr std::size_t kLongestAnswer = std::size_t{16} << 10;
constexpr std::size_t kMostCompared = 100;
constexpr int kDeepestComparison = 40;

bool is_scalar(const Answer& answer) { return answer.kind == AnswerKind::kFormula; }
bool is_plain(const Answer& answer) { return is_scalar(answer) && !answer.unit; }

Answer scalar_answer(Formula formula) {
  Answer answer;
  answer.kind = AnswerKind::kFormula;
  answer.formula = std::move(formula);
  return answer;
}

bool is_infinite(const Formula& formula) { return formula.kind == FormulaKind::kInfinity; }
bool is_minus_infinite(const Formula& formula) {
  return formula.kind == FormulaKind::kNegative && formula.args[0].kind == FormulaKind::kInfinity;
}

class Comparison {
 public:
  /// `truth` first.
  bool equal(const Answer& truth, const Answer& given, int depth = 0) {
    if (depth > kDeepestComparison || --budget_.comparisons < 0) return false;
    const Answer a = simplified(truth);
    const Answer b = simplified(depth == 0 ? with_parameters_of(truth, given) : given);
    return same(a, b, depth + 1);
  }

 private:
  // --- one form for what is written in several ------------------------------------------------

  /// Signs of both kinds as two answers; domains of parameters dropped; "x = 2, 3" as "2, 3".
  Answer simplified(const Answer& answer) {
    Answer out = answer;
    if (is_scalar(out) && has_either(out.formula)) return both_signs(out);
    if (out.kind == AnswerKind::kRelation && out.signs[0] == "\\ne") return both_unequal(out);
    if (out.kind == AnswerKind::kRelation) return out;
    if (out.kind != AnswerKind::kList && out.kind != AnswerKind::kSet) return out;
    std::vector<Answer> parts;
    std::vector<std::string> signs;
    for (std::size_t i = 0; i < out.parts.size(); ++i) {
      Answer& part = out.parts[i];
      if (out.kind == AnswerKind::kList && out.parts.size() > 1 && is_domain(part)) continue;
      Answer simple = simplified(part);
      const std::string sign = i > 0 && i - 1 < out.signs.size() ? out.signs[i - 1] : ",";
      if (simple.kind == AnswerKind::kList &&
          (is_scalar(part) || part.kind == AnswerKind::kRelation)) {
        for (Answer& each : simple.parts) {
          parts.push_back(std::move(each));
          signs.push_back(sign);
        }
      } else {
        parts.push_back(std::move(simple));
        signs.push_back(sign);
      }
    }
    if (parts.size() == 1 && out.kind == AnswerKind::kList) return std::move(parts[0]);
    out.parts = std::move(parts);
    if (!signs.empty()) signs.erase(signs.begin());
    out.signs = std::move(signs);
    return out;
  }

  static bool has_either(const Formula& formula) {
    return any_node(formula, [](const Formula& node) { return node.kind == FormulaKind::kEither; });
  }

  /// x \ne \pm 2: both do not hold.
  static Answer both_unequal(const Answer& relation) {
    const bool has_signs = std::ranges::any_of(relation.parts, [](const Answer& part) {
      return is_plain(part) && has_either(part.formula);
    });
    if (!has_signs) return relation;
    Answer list;
    list.kind = AnswerKind::kList;
    for (const bool is_first : {true, false}) {
      Answer one = relation;
      for (Answer& part : one.parts) part.formula = with_signs(part.formula, is_first);
      list.parts.push_back(std::move(one));
    }
    list.signs = {"and"};
    return list;
  }

  Answer both_signs(const Answer& answer) {
    Answer list;
    list.kind = AnswerKind::kList;
    for (const bool is_first : {true, false}) {
      Answer one = answer;
      one.formula = with_signs(answer.formula, is_first);
      list.parts.push_back(std::move(one));
    }
    list.signs = {"or"};
    return list;
  }

  /// "k \in \mathbb{Z}": says of a parameter what it may be.
  static bool is_domain(const Answer& answer) {
    return answer.kind == AnswerKind::kRelation && answer.signs[0] == "\\in" &&
           answer.parts.size() == 2 && answer.parts[1].kind == AnswerKind::kNumbers &&
           is_plain(answer.parts[0]) && answer.parts[0].formula.kind == FormulaKind::kSymbol;
  }

  /// Names of the parameters of a list: those of which it says in which set they are.
  static std::vector<std::string> parameters(const Answer& answer) {
    std::vector<std::string> names;
    if (answer.kind != AnswerKind::kList) return names;
    for (const Answer& part : answer.parts) {
      if (is_domain(part)) names.push_back(part.parts[0].formula.text);
    }
    return names;
  }

  /// The answer with its parameters named like those of the truth.
  static Answer with_parameters_of(const Answer& truth, const Answer& given) {
    const std::vector<std::string> wanted = parameters(truth);
    const std::vector<std::string> own = parameters(given);
    if (wanted.size() != 1 || own.size() != 1 || wanted == own) return given;
    Answer out = given;
    rename(out, own[0], wanted[0]);
    return out;
  }

  static void rename(Answer& answer, const std::string& from, const std::string& to) {
    answer.formula = substituted(answer.formula, from, symbol_formula(to));
    for (Answer& part : answer.parts) rename(part, from, to);
  }

  // --- assignments ----------------------------------------------------------------------------

  struct Assignment {
    std::string name;  // shape of what is defined
    bool is_function = false;
    Answer value;
  };

  /// "x = 5", "S = 2 + 3 = 5", "3 + 4 = 7" (without a name). Nothing for other relations, and for
  /// chains whose numbers are not equal.
  std::optional<Assignment> assignment(const Answer& answer) {
    if (answer.kind != AnswerKind::kRelation) return std::nullopt;
    for (const std::string& sign : answer.signs) {
      if (sign != "=" && sign != "\\equiv" && sign != "\\cong") return std::nullopt;
    }
    const Answer& left = answer.parts.front();
    Assignment out;
    std::size_t first = 0;
    const bool is_named = (is_plain(left) && is_name(left.formula)) || is_name_tuple(left);
    if (is_named) {
      out.name = is_plain(left) ? shape_of(left.formula) : "tuple";
      out.is_function = is_plain(left) && left.formula.kind == FormulaKind::kProduct;
      first = 1;
    }
    for (std::size_t i = first + 1; i < answer.parts.size(); ++i) {
      const bool agree =
          is_scalar(answer.parts[i]) && is_scalar(answer.parts[i - 1]) &&
          are_equal_formulas(answer.parts[i - 1].formula, answer.parts[i].formula, budget_);
      if (!agree) return std::nullopt;
    }
    out.value = simplified(answer.parts.back());
    return out;
  }

  static bool is_name_tuple(const Answer& answer) {
    return answer.kind == AnswerKind::kTuple &&
           std::ranges::all_of(answer.parts, [](const Answer& part) {
             return is_plain(part) && is_name(part.formula);
           });
  }

  /// "x = 1, y = 2" and "(x, y) = (1, 2)" by name; nothing for other answers.
  std::optional<std::map<std::string, Answer>> assignments(const Answer& answer) {
    std::map<std::string, Answer> out;
    if (answer.kind == AnswerKind::kRelation && answer.parts.size() == 2 &&
        is_name_tuple(answer.parts[0]) && answer.parts[1].kind == AnswerKind::kTuple &&
        answer.parts[0].parts.size() == answer.parts[1].parts.size()) {
      for (std::size_t i = 0; i < answer.parts[0].parts.size(); ++i)
        out[shape_of(answer.parts[0].parts[i].formula)] = answer.parts[1].parts[i];
      return out;
    }
    if (answer.kind != AnswerKind::kList || answer.parts.size() < 2) return std::nullopt;
    for (const Answer& part : answer.parts) {
      std::optional<Assignment> one = assignment(part);
      if (!one || one->name.empty() || !out.emplace(one->name, std::move(one->value)).second)
        return std::nullopt;
    }
    return out;
  }

  /// The values of "x = 2 or x = 3", "x = 2, 3"; nothing when several names are defined.
  std::optional<Answer> values_of_one_name(const Answer& list) {
    Answer out = list;
    std::string name;
    for (Answer& part : out.parts) {
      if (part.kind != AnswerKind::kRelation) continue;
      std::optional<Assignment> one = assignment(part);
      if (!one || (!name.empty() && name != one->name)) return std::nullopt;
      name = one->name;
      part = std::move(one->value);
    }
    if (name.empty()) return std::nullopt;
    return simplified(out);
  }

  // --- comparison -----------------------------------------------------------------------------

  bool same(const Answer& a, const Answer& b, int depth) {
    if (a.kind == AnswerKind::kText || b.kind == AnswerKind::kText) {
      return a.kind == b.kind && !a.text.empty() && a.text == b.text;
    }
    if (same_assignments(a, b, depth)) return true;
    if (a.kind == AnswerKind::kRelation || b.kind == AnswerKind::kRelation) {
      if (same_relations(a, b, depth)) return true;
    }
    if (is_sided(a) || is_sided(b)) {
      if (const auto sets = both_sets(a, b))
        return are_equal_sets(sets->first, sets->second, budget_);
    }
    if (a.kind == AnswerKind::kBuilder || b.kind == AnswerKind::kBuilder)
      return same_builders(a, b, depth);
    if (is_many(a) || is_many(b)) return same_many(a, b, depth);
    if (a.kind == AnswerKind::kResidue || b.kind == AnswerKind::kResidue)
      return same_residues(a, b);
    if (a.kind == AnswerKind::kRatio || b.kind == AnswerKind::kRatio)
      return same_ratios(a, b, depth);
    if (a.kind == AnswerKind::kMatrix || b.kind == AnswerKind::kMatrix)
      return same_matrices(a, b, depth);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
      case AnswerKind::kFormula:
        return same_quantities(a, b);
      case AnswerKind::kTuple:
        return a.open == b.open && a.close == b.close && same_in_order(a.parts, b.parts, depth);
      case AnswerKind::kOperation:
        return a.text == b.text && same_in_order(a.parts, b.parts, depth);
      case AnswerKind::kNumbers:
        return a.text == b.text;
      case AnswerKind::kBased:
        return a.text == b.text && are_equal_formulas(a.formula, b.formula, budget_);
      case AnswerKind::kEllipsis:
        return true;
      default:
        return false;
    }
  }

  bool same_in_order(const std::vector<Answer>& a, const std::vector<Answer>& b, int depth) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!equal(a[i], b[i], depth)) return false;
    }
    return true;
  }

  /// Names on one side or the same on both, then the values.
  bool same_assignments(const Answer& a, const Answer& b, int depth) {
    const auto many_a = assignments(a);
    const auto many_b = assignments(b);
    if (many_a && many_b) {
      if (many_a->size() != many_b->size()) return false;
      for (const auto& [name, value] : *many_a) {
        const auto other = many_b->find(name);
        if (other == many_b->end() || !equal(value, other->second, depth)) return false;
      }
      return true;
    }
    if (many_a && b.kind == AnswerKind::kTuple) return same_values(*many_a, b, depth);
    if (many_b && a.kind == AnswerKind::kTuple) return same_values(*many_b, a, depth);
    const auto one_a = assignment(a);
    const auto one_b = assignment(b);
    if (one_a && one_b) {
      const bool may_agree = one_a->name == one_b->name || one_a->name.empty() ||
                             one_b->name.empty() || one_a->is_function || one_b->is_function;
      return may_agree && equal(one_a->value, one_b->value, depth);
    }
    if (one_a && b.kind != AnswerKind::kRelation) return equal(one_a->value, b, depth);
    if (one_b && a.kind != AnswerKind::kRelation) return equal(a, one_b->value, depth);
    if (a.kind == AnswerKind::kList || b.kind == AnswerKind::kList) {
      const std::optional<Answer> list_a =
          a.kind == AnswerKind::kList ? values_of_one_name(a) : std::nullopt;
      const std::optional<Answer> list_b =
          b.kind == AnswerKind::kList ? values_of_one_name(b) : std::nullopt;
      if (list_a || list_b) return equal(list_a.value_or(a), list_b.value_or(b), depth);
    }
    return false;
  }

  /// x = 1, y = 2 against (1, 2): in the order of the names.
  bool same_values(const std::map<std::string, Answer>& named, const Answer& tuple, int depth) {
    if (named.size() != tuple.parts.size() || tuple.open != "(" || tuple.close != ")") return false;
    std::size_t i = 0;
    for (const auto& [name, value] : named) {
      if (!equal(value, tuple.parts[i++], depth)) return false;
    }
    return true;
  }

  // --- relations ------------------------------------------------------------------------------

  /// Both equations, or both inequalities, that hold for the same values of their variables.
  bool same_relations(const Answer& a, const Answer& b, int depth) {
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

  /// "x \in S" without "x \in".
  std::optional<Answer> membership(const Answer& answer) {
    if (answer.kind != AnswerKind::kRelation || answer.parts.size() != 2 ||
        answer.signs[0] != "\\in")
      return std::nullopt;
    return answer.parts[1];
  }

  /// x \equiv 3 \pmod 7 of one name.
  bool same_congruences(const Answer& a, const Answer& b) {
    const auto residue = [](const Answer& of) {
      return of.parts.size() == 2 && of.signs[0] == "\\equiv" &&
             of.parts[1].kind == AnswerKind::kResidue && is_plain(of.parts[0]);
    };
    return residue(a) && residue(b) &&
           are_equal_formulas(a.parts[0].formula, b.parts[0].formula, budget_) &&
           same_residues(a.parts[1], b.parts[1]);
  }

  struct OneSided {
    Formula formula;
    std::string sign;  // formula sign 0: "=", "\ne", ">", "\ge"
  };

  static std::optional<OneSided> one_sided(const Answer& relation) {
    if (relation.parts.size() != 2) return std::nullopt;
    return one_sided(relation.parts[0], relation.signs[0], relation.parts[1]);
  }

  static std::optional<OneSided> one_sided(const Answer& left, const std::string& sign,
                                           const Answer& right) {
    if (!is_plain(left) || !is_plain(right)) return std::nullopt;
    if (sign == "=" || sign == "\\ne" || sign == ">" || sign == "\\ge")
      return OneSided{difference_of(left.formula, right.formula), sign};
    if (sign == "<") return OneSided{difference_of(right.formula, left.formula), ">"};
    if (sign == "\\le") return OneSided{difference_of(right.formula, left.formula), "\\ge"};
    return std::nullopt;
  }

  // --- sets of real numbers -------------------------------------------------------------------

  /// Answers that are sets of numbers by themselves, not only beside another one.
  bool is_sided(const Answer& answer) {
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

  std::optional<std::pair<RealSet, RealSet>> both_sets(const Answer& a, const Answer& b) {
    std::optional<RealSet> left = to_set(a, 0);
    std::optional<RealSet> right = left ? to_set(b, 0) : std::nullopt;
    if (!right) return std::nullopt;
    return std::pair{std::move(*left), std::move(*right)};
  }

  std::optional<RealSet> to_set(const Answer& answer, int depth) {
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

  std::optional<RealSet> interval_of(const Answer& tuple) {
    if (tuple.parts.size() != 2 || !is_plain(tuple.parts[0]) || !is_plain(tuple.parts[1]))
      return std::nullopt;
    const Formula& low = tuple.parts[0].formula;
    const Formula& high = tuple.parts[1].formula;
    const bool is_from = is_minus_infinite(low);
    const bool is_to = is_infinite(high);
    return interval(is_from ? std::nullopt : std::optional(low), tuple.open == "[",
                    is_to ? std::nullopt : std::optional(high), tuple.close == "]", budget_);
  }

  /// The solutions of a chain of inequalities that are linear in one variable.
  std::optional<RealSet> solutions(const Answer& chain, int depth) {
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

  std::optional<RealSet> solutions(const Answer& left, const std::string& sign,
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
    const Formula line = binary(
        FormulaKind::kSum, binary(FormulaKind::kProduct, slope, symbol_formula(names[0])), zero);
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

  /// |u| < c is -c < u < c, |u| > c the rest.
  std::optional<RealSet> bounded_size(const Answer& left, const std::string& sign,
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
    const Answer inside = scalar_answer(left.formula.args[0]);
    const Answer minus = scalar_answer(unary(FormulaKind::kNegative, right.formula));
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

  bool same_builders(const Answer& a, const Answer& b, int depth) {
    return a.kind == b.kind && equal(a.parts[0], b.parts[0], depth) &&
           equal(a.parts[1], b.parts[1], depth);
  }

  // --- several answers ------------------------------------------------------------------------

  static bool is_many(const Answer& answer) {
    return answer.kind == AnswerKind::kList || answer.kind == AnswerKind::kSet ||
           (answer.kind == AnswerKind::kOperation && answer.text == "\\cup");
  }

  /// The elements of sets, lists and unions of sets.
  static bool collect(const Answer& answer, std::vector<Answer>& out, int depth) {
    if (depth > kDeepestComparison || out.size() > kMostCompared) return false;
    if (answer.kind == AnswerKind::kOperation) {
      return answer.text == "\\cup" && std::ranges::all_of(answer.parts, [&](const Answer& part) {
               return (part.kind == AnswerKind::kSet || part.kind == AnswerKind::kOperation) &&
                      collect(part, out, depth + 1);
             });
    }
    out.insert(out.end(), answer.parts.begin(), answer.parts.end());
    return out.size() <= kMostCompared;
  }

  bool has_order(const std::vector<Answer>& parts) const {
    return std::ranges::any_of(
        parts, [](const Answer& part) { return part.kind == AnswerKind::kEllipsis; });
  }

  bool same_many(const Answer& a, const Answer& b, int depth) {
    std::vector<Answer> left, right;
    // A set of one element, or what stands alone, is that element.
    const auto elements = [&](const Answer& of, std::vector<Answer>& into) {
      if (is_many(of)) return collect(of, into, 0);
      into.push_back(of);
      return of.kind != AnswerKind::kTuple || !is_many(of);
    };
    if (!elements(a, left) || !elements(b, right)) return false;
    if (has_order(left) || has_order(right)) return same_in_order(left, right, depth);
    const std::vector<Answer> first = distinct(left, depth);
    const std::vector<Answer> second = distinct(right, depth);
    if (first.size() != second.size()) return false;
    std::vector<bool> is_used(second.size(), false);
    for (const Answer& part : first) {
      bool is_found = false;
      for (std::size_t i = 0; i < second.size() && !is_found; ++i) {
        if (is_used[i] || !equal(part, second[i], depth)) continue;
        is_used[i] = true;
        is_found = true;
      }
      if (!is_found) return false;
    }
    return true;
  }

  std::vector<Answer> distinct(const std::vector<Answer>& parts, int depth) {
    std::vector<Answer> out;
    for (const Answer& part : parts) {
      const bool is_known =
          std::ranges::any_of(out, [&](const Answer& other) { return equal(other, part, depth); });
      if (!is_known) out.push_back(part);
    }
    return out;
  }

  // --- matrices, ratios, residues -------------------------------------------------------------

  bool same_matrices(const Answer& a, const Answer& b, int depth) {
    if (a.kind == b.kind) return a.columns == b.columns && same_in_order(a.parts, b.parts, depth);
    // A vector as a point.
    const Answer& matrix = a.kind == AnswerKind::kMatrix ? a : b;
    const Answer& other = a.kind == AnswerKind::kMatrix ? b : a;
    const bool is_vector = matrix.columns == 1 || matrix.columns == matrix.parts.size();
    return is_vector && other.kind == AnswerKind::kTuple && other.open == "(" &&
           other.close == ")" && same_in_order(matrix.parts, other.parts, depth);
  }

  bool same_ratios(const Answer& a, const Answer& b, int depth) {
    if (a.kind == b.kind) {
      if (a.parts.size() != b.parts.size() || a.text != b.text) return false;
      if (same_in_order(a.parts, b.parts, depth)) return true;
      if (!a.text.empty()) return false;
      // In proportion: a_i b_0 = a_0 b_i; no part is 0, as in times.
      for (std::size_t i = 0; i < a.parts.size(); ++i) {
        if (!is_plain(a.parts[i]) || !is_plain(b.parts[i])) return false;
        if (is_zero_formula(a.parts[i].formula, budget_) ||
            is_zero_formula(b.parts[i].formula, budget_))
          return false;
        if (!are_equal_formulas(
                binary(FormulaKind::kProduct, a.parts[i].formula, b.parts[0].formula),
                binary(FormulaKind::kProduct, a.parts[0].formula, b.parts[i].formula), budget_)) {
          return false;
        }
      }
      return true;
    }
    const Answer& ratio = a.kind == AnswerKind::kRatio ? a : b;
    const Answer& other = a.kind == AnswerKind::kRatio ? b : a;
    return ratio.parts.size() == 2 && ratio.text.empty() && is_plain(other) &&
           is_plain(ratio.parts[0]) && is_plain(ratio.parts[1]) &&
           are_equal_formulas(quotient_of(ratio.parts[0].formula, ratio.parts[1].formula),
                              other.formula, budget_);
  }

  bool same_residues(const Answer& a, const Answer& b) {
    const auto parts_are_plain = [](const Answer& of) {
      return of.kind != AnswerKind::kResidue || (is_plain(of.parts[0]) && is_plain(of.parts[1]));
    };
    if (!parts_are_plain(a) || !parts_are_plain(b)) return false;
    const auto rest = [](const Answer& of) {
      std::vector<Formula> args;
      args.push_back(of.parts[0].formula);
      args.push_back(of.parts[1].formula);
      return function_of("mod", std::move(args));
    };
    if (a.kind == b.kind) {
      return are_equal_formulas(a.parts[1].formula, b.parts[1].formula, budget_) &&
             are_equal_formulas(rest(a), rest(b), budget_);
    }
    const Answer& residue = a.kind == AnswerKind::kResidue ? a : b;
    const Answer& other = a.kind == AnswerKind::kResidue ? b : a;
    return is_plain(other) && are_equal_formulas(rest(residue), other.formula, budget_);
  }

  // --- quantities -----------------------------------------------------------------------------

  bool same_quantities(const Answer& a, const Answer& b) {
    if (!a.unit && !b.unit) return are_equal_formulas(a.formula, b.formula, budget_);
    if (a.unit && b.unit) return same_units(a, b);
    const Answer& measured = a.unit ? a : b;
    const Answer& bare = a.unit ? b : a;
    const Unit& unit = *measured.unit;
    if (unit.is_percent) {
      if (are_equal_formulas(hundredth(measured.formula), bare.formula, budget_)) return true;
      // A share is at most 1: "0.5" is no 0.5 %, but "50" may be 50 %.
      const std::optional<double> value = real_value(bare.formula, budget_);
      return value && std::abs(*value) > 1 &&
             are_equal_formulas(measured.formula, bare.formula, budget_);
    }
    if (unit.is_degree && are_equal_formulas(in_radians(measured.formula), bare.formula, budget_))
      return true;
    return are_equal_formulas(measured.formula, bare.formula, budget_);
  }

  bool same_units(const Answer& a, const Answer& b) {
    const Unit& left = *a.unit;
    const Unit& right = *b.unit;
    if (left.is_percent || right.is_percent || left.is_degree || right.is_degree) {
      return left.is_percent == right.is_percent && left.is_degree == right.is_degree &&
             are_equal_formulas(a.formula, b.formula, budget_);
    }
    if (left.powers != right.powers) return false;
    return are_equal_formulas(converted(a), converted(b), budget_);
  }

  static Formula converted(const Answer& quantity) {
    return quotient_of(
        binary(FormulaKind::kProduct, quantity.formula, number_formula(quantity.unit->numerator)),
        number_formula(quantity.unit->denominator));
  }

  static Formula hundredth(const Formula& of) { return quotient_of(of, number_formula("100")); }

  static Formula in_radians(const Formula& degrees) {
    std::vector<Formula> args;
    args.push_back(degrees);
    return function_of("degree", std::move(args));
  }

  GradingBudget budget_;
};

/// The choice that an answer names: "C", "(C)", "(C) 12", "C. twelve"; nothing for other answers.
std::optional<char> choice_of(const PlainLatex& plain) {
  std::string_view text = plain.text;
  text = stripped(text);
  for (const std::string_view lead : {"option ", "choice "}) {
    if (to_lower(text).starts_with(lead)) text = stripped(text.substr(lead.size()));
  }
  const bool has_bracket = text.starts_with('(');
  if (has_bracket) text = stripped(text.substr(1));
  if (text.empty() || text[0] < 'A' || text[0] > 'Z') return std::nullopt;
  const char letter = text[0];
  std::string_view rest = stripped(text.substr(1));
  const bool is_closed = !rest.empty() && (rest[0] == ')' || rest[0] == '.' || rest[0] == ':');
  if (has_bracket && (rest.empty() || rest[0] != ')')) return std::nullopt;
  if (rest.empty()) return letter;
  if (!is_closed) return std::nullopt;
  rest.remove_prefix(1);
  // Another choice behind it makes two of them.
  for (std::size_t i = 0; i + 2 < rest.size(); ++i) {
    if (rest[i] == '(' && rest[i + 1] >= 'A' && rest[i + 1] <= 'Z' && rest[i + 2] == ')')
      return std::nullopt;
  }
  for (const std::string_view word : split(rest, " ")) {
    if (word == "or" || word == "and") return std::nullopt;
  }
  return letter;
}

bool may_keep_commas(std::string_view text) {
  return text.find_first_of("([{") != std::string_view::npos &&
         text.find(',') != std::string_view::npos;
}

}  // namespace

bool are_equal_answers(std::string_view truth, std::string_view given) {
  if (truth.size() > kLongestAnswer || given.size() > kLongestAnswer) return given == truth;
  const PlainLatex right = plain_latex(truth);
  const PlainLatex said = plain_latex(given);
  const std::string right_form = text_form(right);
  if (right_form.empty()) return false;
  const std::string said_form = text_form(said);
  if (right_form == said_form) return true;
  // One of the usual five choices, in small letters.
  if (right_form.size() == 1 && to_lower(right_form) == to_lower(said_form) &&
      to_lower(right_form) >= "a" && to_lower(right_form) <= "e") {
    return true;
  }
  const std::optional<char> right_choice = choice_of(right);
  if (right_choice) {
    const std::optional<char> said_choice = choice_of(said);
    if (said_choice) return right_choice == said_choice;
  }
  // Commas between digits are those of thousands, or those of a list in brackets.
  std::vector<Answer> truths, answers;
  truths.push_back(read_answer(right));
  answers.push_back(read_answer(said));
  if (may_keep_commas(right.text)) truths.push_back(read_answer(right, true));
  if (may_keep_commas(said.text)) answers.push_back(read_answer(said, true));
  Comparison comparison;
  for (const Answer& one : truths) {
    for (const Answer& other : answers) {
      if (comparison.equal(one, other)) return true;
    }
  }
  return false;
}

}  // namespace slime::reward
