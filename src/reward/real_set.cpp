#include "reward/real_set.h"

#include <algorithm>
#include <cmath>

namespace slime::reward {
namespace {

/// Ends whose values are this near are compared as formulas.
bool are_near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({1e-300, std::abs(a), std::abs(b)});
}

/// The set with ends that divide nothing left out.
RealSet simplified(const RealSet& set) {
  RealSet out;
  out.in_gap = {set.in_gap[0]};
  for (std::size_t i = 0; i < set.ends.size(); ++i) {
    if (set.at_end[i] == out.in_gap.back() && set.in_gap[i + 1] == out.in_gap.back()) continue;
    out.ends.push_back(set.ends[i]);
    out.values.push_back(set.values[i]);
    out.at_end.push_back(set.at_end[i]);
    out.in_gap.push_back(set.in_gap[i + 1]);
  }
  return out;
}

bool operate(bool a, bool b, SetOperation operation) {
  switch (operation) {
    case SetOperation::kUnion:
      return a || b;
    case SetOperation::kIntersection:
      return a && b;
    case SetOperation::kDifference:
      return a && !b;
  }
  return false;
}

}  // namespace

RealSet all_reals() { return {.in_gap = {true}}; }

std::optional<RealSet> interval(const std::optional<Formula>& low, bool has_low,
                                const std::optional<Formula>& high, bool has_high,
                                GradingBudget& budget) {
  const std::optional<double> first = low ? real_value(*low, budget) : -INFINITY;
  const std::optional<double> last = high ? real_value(*high, budget) : INFINITY;
  if (!first || !last) return std::nullopt;
  RealSet set;
  if (low && high && are_near(*first, *last) && are_equal_formulas(*low, *high, budget)) {
    if (!has_low || !has_high) return std::nullopt;
    return RealSet{{*low}, {*first}, {true}, {false, false}};
  }
  if (!(*first < *last)) return std::nullopt;
  set.in_gap = {!low};
  if (low) {
    set.ends.push_back(*low);
    set.values.push_back(*first);
    set.at_end.push_back(has_low);
    set.in_gap.push_back(true);
  }
  if (high) {
    set.ends.push_back(*high);
    set.values.push_back(*last);
    set.at_end.push_back(has_high);
    set.in_gap.push_back(false);
  }
  return set;
}

RealSet combined(const RealSet& a, const RealSet& b, SetOperation operation,
                 GradingBudget& budget) {
  RealSet out;
  out.in_gap = {operate(a.in_gap[0], b.in_gap[0], operation)};
  std::size_t i = 0, j = 0;
  while (i < a.ends.size() || j < b.ends.size()) {
    const bool has_both = i < a.ends.size() && j < b.ends.size();
    const bool is_same = has_both && are_near(a.values[i], b.values[j]) &&
                         are_equal_formulas(a.ends[i], b.ends[j], budget);
    const bool takes_a = is_same || j == b.ends.size() || (has_both && a.values[i] < b.values[j]);
    const bool takes_b = is_same || !takes_a;
    const bool in_a = takes_a ? a.at_end[i] : a.in_gap[i];
    const bool in_b = takes_b ? b.at_end[j] : b.in_gap[j];
    out.ends.push_back(takes_a ? a.ends[i] : b.ends[j]);
    out.values.push_back(takes_a ? a.values[i] : b.values[j]);
    out.at_end.push_back(operate(in_a, in_b, operation));
    i += takes_a ? 1 : 0;
    j += takes_b ? 1 : 0;
    out.in_gap.push_back(operate(a.in_gap[i], b.in_gap[j], operation));
  }
  return simplified(out);
}

bool are_equal_sets(const RealSet& a, const RealSet& b, GradingBudget& budget) {
  const RealSet left = simplified(a);
  const RealSet right = simplified(b);
  if (left.at_end != right.at_end || left.in_gap != right.in_gap) return false;
  for (std::size_t i = 0; i < left.ends.size(); ++i) {
    if (!are_near(left.values[i], right.values[i]) ||
        !are_equal_formulas(left.ends[i], right.ends[i], budget)) {
      return false;
    }
  }
  return true;
}

}  // namespace slime::reward
