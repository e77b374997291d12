#pragma once

/// Comparison of two typed answers, for are_equal_answers alone. Its functions lie in one file per
/// noun: answer_forms.cpp, answer_relations.cpp, answer_equality.cpp.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reward/answer.h"
#include "reward/formula_equality.h"
#include "reward/real_set.h"

namespace slime::reward {

inline constexpr int kDeepestComparison = 40;

/// One label and one response: what its comparisons cost together is bounded.
class Comparison {
 public:
  /// `truth` first.
  bool equal(const Answer& truth, const Answer& given, int depth = 0);

 private:
  // One form for what is written in several.

  /// Signs of both kinds as two answers; domains of parameters dropped; "x = 2, 3" as "2, 3".
  Answer simplified(const Answer& answer);
  static bool has_either(const Formula& formula);
  /// x \ne \pm 2: both do not hold.
  static Answer both_unequal(const Answer& relation);
  Answer both_signs(const Answer& answer);
  /// "k \in \mathbb{Z}": says of a parameter what it may be.
  static bool is_domain(const Answer& answer);
  /// Names of the parameters of a list: those of which it says in which set they are.
  static std::vector<std::string> parameters(const Answer& answer);
  /// The answer with its parameters named like those of the truth.
  static Answer with_parameters_of(const Answer& truth, const Answer& given);
  static void rename(Answer& answer, const std::string& from, const std::string& to);

  // Assignments.

  struct Assignment {
    std::string name;  // shape of what is defined
    bool is_function = false;
    Answer value;
  };
  /// "x = 5", "S = 2 + 3 = 5", "3 + 4 = 7" (without a name). Nothing for other relations, and for
  /// chains whose numbers are not equal.
  std::optional<Assignment> assignment(const Answer& answer);
  static bool is_name_tuple(const Answer& answer);
  /// "x = 1, y = 2" and "(x, y) = (1, 2)" by name; nothing for other answers.
  std::optional<std::map<std::string, Answer>> assignments(const Answer& answer);
  /// The values of "x = 2 or x = 3", "x = 2, 3"; nothing when several names are defined.
  std::optional<Answer> values_of_one_name(const Answer& list);

  // Comparison.

  bool same(const Answer& a, const Answer& b, int depth);
  bool same_in_order(const std::vector<Answer>& a, const std::vector<Answer>& b, int depth);
  /// Names on one side or the same on both, then the values.
  bool same_assignments(const Answer& a, const Answer& b, int depth);
  /// x = 1, y = 2 against (1, 2): in the order of the names.
  bool same_values(const std::map<std::string, Answer>& named, const Answer& tuple, int depth);

  // Relations.

  /// Both equations, or both inequalities, that hold for the same values of their variables.
  bool same_relations(const Answer& a, const Answer& b, int depth);
  /// "x \in S" without "x \in".
  std::optional<Answer> membership(const Answer& answer);
  /// x \equiv 3 \pmod 7 of one name.
  bool same_congruences(const Answer& a, const Answer& b);
  struct OneSided {
    Formula formula;
    std::string sign;  // formula sign 0: "=", "\ne", ">", "\ge"
  };
  static std::optional<OneSided> one_sided(const Answer& relation);
  static std::optional<OneSided> one_sided(const Answer& left, const std::string& sign,
                                           const Answer& right);

  // Sets of real numbers.

  /// Answers that are sets of numbers by themselves, not only beside another one.
  bool is_sided(const Answer& answer);
  std::optional<std::pair<RealSet, RealSet>> both_sets(const Answer& a, const Answer& b);
  std::optional<RealSet> to_set(const Answer& answer, int depth);
  std::optional<RealSet> interval_of(const Answer& tuple);
  /// The solutions of a chain of inequalities that are linear in one variable.
  std::optional<RealSet> solutions(const Answer& chain, int depth);
  std::optional<RealSet> solutions(const Answer& left, const std::string& sign,
                                   const Answer& right);
  /// |u| < c is -c < u < c, |u| > c the rest.
  std::optional<RealSet> bounded_size(const Answer& left, const std::string& sign,
                                      const Answer& right);
  bool same_builders(const Answer& a, const Answer& b, int depth);

  // Several answers.

  static bool is_many(const Answer& answer);
  /// The elements of sets, lists and unions of sets.
  static bool collect(const Answer& answer, std::vector<Answer>& out, int depth);
  bool has_order(const std::vector<Answer>& parts) const;
  bool same_many(const Answer& a, const Answer& b, int depth);
  std::vector<Answer> distinct(const std::vector<Answer>& parts, int depth);

  // Matrices, ratios, residues.

  bool same_matrices(const Answer& a, const Answer& b, int depth);
  bool same_ratios(const Answer& a, const Answer& b, int depth);
  bool same_residues(const Answer& a, const Answer& b);

  // Quantities.

  bool same_quantities(const Answer& a, const Answer& b);
  bool same_units(const Answer& a, const Answer& b);
  static Formula converted(const Answer& quantity);
  static Formula hundredth(const Formula& of);
  static Formula in_radians(const Formula& degrees);
  GradingBudget budget_;
};

}  // namespace slime::reward
