#pragma once

/// Equality of two formulas as numbers or functions, decided so that an approximation is never
/// taken for equal.
///
/// Numbers are exact rationals as long as possible, then closed numbers (reward/closed_number.h).
/// Symbols get generic complex values; real ones of both signs where an absolute value of a symbol
/// occurs; whole numbers where a factorial, binomial, floor or series of a symbol does.

#include <cstdint>
#include <optional>

#include "reward/formula.h"

namespace slime::reward {

/// Work that grading one answer may cost, all its comparisons together. What is spent makes the rest
/// undecided, that is, not equal.
struct GradingBudget {
  int64_t limb_products = 100'000'000;  // of exact integers: about half a second
  int transcendental = 250;             // logarithms and the like: one to two milliseconds each
  int comparisons = 4'000;              // of formulas
};

/// False also where it cannot be decided.
bool are_equal_formulas(const Formula& a, const Formula& b, GradingBudget& budget);

/// Whether the formula is 0 for all values of its symbols.
bool is_zero_formula(const Formula& formula, GradingBudget& budget);

/// The value of a formula without symbols; nothing when it has none or is no real number.
std::optional<double> real_value(const Formula& formula, GradingBudget& budget);

/// The value where each symbol has a fixed positive value; nothing when that is no real number.
std::optional<double> sample_value(const Formula& formula, GradingBudget& budget);

}  // namespace slime::reward
