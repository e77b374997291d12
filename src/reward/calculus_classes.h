#pragma once

/// Integrals and limits as unknowns: two of the same form are the same unknown, others are others.
///
///   2 \int_0^1 x(x+1) dx   and   \int_0^1 (t + t^2) dt * 2   are both   2 u
///
/// The same form: the same bounds, or variable and point, and bodies that are equal functions of the
/// bound variable, whatever its name. Nothing is integrated.

#include <functional>
#include <vector>

#include "reward/formula.h"

namespace slime::reward {

class CalculusClasses {
 public:
  using AreEqual = std::function<bool(const Formula& a, const Formula& b)>;

  /// `are_equal` compares formulas without integrals and limits.
  explicit CalculusClasses(AreEqual are_equal) : are_equal_(std::move(are_equal)) {}

  /// The formula with a symbol in the place of each integral and limit.
  Formula abstracted(const Formula& formula, int depth = 1);

 private:
  /// `node` has no integrals and limits inside.
  Formula unknown_of(Formula node);

  AreEqual are_equal_;
  std::vector<Formula> known_;
};

/// An integral or a limit.
bool is_calculus_node(const Formula& node);

}  // namespace slime::reward
