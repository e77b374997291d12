#pragma once

/// Equality of two answers as expressions, decided by evaluation instead of algebra (spec appendix
/// A.2).

#include <string_view>

namespace slime::reward {

/// Rational arithmetic when only numbers and rational operations occur: exact, in double from the
/// first decimal on. Otherwise both sides are evaluated at three fixed generic complex points, and
/// have to agree at all of them: within a tolerance where one has a decimal, as algebraic numbers
/// (reward/closed_form.h) where none has. Anything that cannot be parsed or evaluated (division
/// by zero, numbers of more than 4,096 bits) is not equal.
bool are_equal_expressions(std::string_view truth, std::string_view given);

}  // namespace slime::reward
