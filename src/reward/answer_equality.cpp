#include "reward/answer_equality.h"

#include <algorithm>
#include <cmath>

#include "reward/answer_comparison.h"
#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{16} << 10;
constexpr std::size_t kMostCompared = 100;

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

bool Comparison::equal(const Answer& truth, const Answer& given, int depth) {
  if (depth > kDeepestComparison || --budget_.comparisons < 0) return false;
  const Answer a = simplified(truth);
  const Answer b = simplified(depth == 0 ? with_parameters_of(truth, given) : given);
  return same(a, b, depth + 1);
}

bool Comparison::same(const Answer& a, const Answer& b, int depth) {
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
  if (a.kind == AnswerKind::kResidue || b.kind == AnswerKind::kResidue) return same_residues(a, b);
  if (a.kind == AnswerKind::kRatio || b.kind == AnswerKind::kRatio) return same_ratios(a, b, depth);
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

bool Comparison::same_in_order(const std::vector<Answer>& a, const std::vector<Answer>& b,
                               int depth) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], depth)) return false;
  }
  return true;
}

bool Comparison::same_assignments(const Answer& a, const Answer& b, int depth) {
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

bool Comparison::same_values(const std::map<std::string, Answer>& named, const Answer& tuple,
                             int depth) {
  if (named.size() != tuple.parts.size() || tuple.open != "(" || tuple.close != ")") return false;
  std::size_t i = 0;
  for (const auto& [name, value] : named) {
    if (!equal(value, tuple.parts[i++], depth)) return false;
  }
  return true;
}

bool Comparison::is_many(const Answer& answer) {
  return answer.kind == AnswerKind::kList || answer.kind == AnswerKind::kSet ||
         (answer.kind == AnswerKind::kOperation && answer.text == "\\cup");
}

bool Comparison::collect(const Answer& answer, std::vector<Answer>& out, int depth) {
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

bool Comparison::has_order(const std::vector<Answer>& parts) const {
  return std::ranges::any_of(parts,
                             [](const Answer& part) { return part.kind == AnswerKind::kEllipsis; });
}

bool Comparison::same_many(const Answer& a, const Answer& b, int depth) {
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

std::vector<Answer> Comparison::distinct(const std::vector<Answer>& parts, int depth) {
  std::vector<Answer> out;
  for (const Answer& part : parts) {
    const bool is_known =
        std::ranges::any_of(out, [&](const Answer& other) { return equal(other, part, depth); });
    if (!is_known) out.push_back(part);
  }
  return out;
}

bool Comparison::same_matrices(const Answer& a, const Answer& b, int depth) {
  if (a.kind == b.kind) return a.columns == b.columns && same_in_order(a.parts, b.parts, depth);
  // A vector as a point.
  const Answer& matrix = a.kind == AnswerKind::kMatrix ? a : b;
  const Answer& other = a.kind == AnswerKind::kMatrix ? b : a;
  const bool is_vector = matrix.columns == 1 || matrix.columns == matrix.parts.size();
  return is_vector && other.kind == AnswerKind::kTuple && other.open == "(" && other.close == ")" &&
         same_in_order(matrix.parts, other.parts, depth);
}

bool Comparison::same_ratios(const Answer& a, const Answer& b, int depth) {
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
      if (!are_equal_formulas(binary(FormulaKind::kProduct, a.parts[i].formula, b.parts[0].formula),
                              binary(FormulaKind::kProduct, a.parts[0].formula, b.parts[i].formula),
                              budget_)) {
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

bool Comparison::same_residues(const Answer& a, const Answer& b) {
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

bool Comparison::same_quantities(const Answer& a, const Answer& b) {
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

bool Comparison::same_units(const Answer& a, const Answer& b) {
  const Unit& left = *a.unit;
  const Unit& right = *b.unit;
  if (left.is_radian || right.is_radian) {
    const auto is_angle = [](const Unit& unit) { return unit.is_radian || unit.is_degree; };
    const auto angle = [](const Answer& of) {
      return of.unit->is_degree ? in_radians(of.formula) : of.formula;
    };
    return is_angle(left) && is_angle(right) && are_equal_formulas(angle(a), angle(b), budget_);
  }
  if (left.is_percent || right.is_percent || left.is_degree || right.is_degree) {
    return left.is_percent == right.is_percent && left.is_degree == right.is_degree &&
           are_equal_formulas(a.formula, b.formula, budget_);
  }
  if (left.powers != right.powers) return false;
  return are_equal_formulas(converted(a), converted(b), budget_);
}

Formula Comparison::converted(const Answer& quantity) {
  return quotient_of(
      binary(FormulaKind::kProduct, quantity.formula, number_formula(quantity.unit->numerator)),
      number_formula(quantity.unit->denominator));
}

Formula Comparison::hundredth(const Formula& of) { return quotient_of(of, number_formula("100")); }

Formula Comparison::in_radians(const Formula& degrees) {
  std::vector<Formula> args;
  args.push_back(degrees);
  return function_of("degree", std::move(args));
}

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
