#pragma once

/// Sets of real numbers with finitely many ends: unions of intervals and points.

#include <optional>
#include <string_view>
#include <vector>

#include "reward/formula_equality.h"

namespace slime::reward {

/// The ends in ascending order cut the line into gaps; each end and each gap lies in the set or not.
/// [0, 1): ends 0, 1; at_end true, false; in_gap false, true, false.
struct RealSet {
  std::vector<Formula> ends = {};
  std::vector<double> values = {};  // of the ends
  std::vector<bool> at_end = {};
  std::vector<bool> in_gap = {false};  // one more than ends
};

RealSet all_reals();
/// The numbers between two ends; nothing where an end has no real value, or they are in wrong order.
/// An end that is absent is infinite.
std::optional<RealSet> interval(const std::optional<Formula>& low, bool has_low,
                                const std::optional<Formula>& high, bool has_high,
                                GradingBudget& budget);

enum class SetOperation { kUnion, kIntersection, kDifference };
RealSet combined(const RealSet& a, const RealSet& b, SetOperation operation, GradingBudget& budget);

bool are_equal_sets(const RealSet& a, const RealSet& b, GradingBudget& budget);

}  // namespace slime::reward
