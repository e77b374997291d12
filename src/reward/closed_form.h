#pragma once

/// Equality of two expressions without decimals as numbers or functions, decided so that an
/// approximation is never taken for equal: 47321/33461 is not sqrt(2).
///
/// Both sides are evaluated in floating point of 2,048 bits with a bound on the error. What is
/// algebraic (integers, + - * /, integer powers, sqrt) has a separation bound: such a number is 0
/// or larger than a bound that follows from its form (Burnikel, Fleischer, Mehlhorn, Schirra 2000),
/// so a difference below the bound is 0. Symbols, and pi where no logarithm occurs, are replaced by
/// fixed generic numbers with a small denominator. For logarithms and other powers no bound is
/// known: there the two sides have to agree in 8 bits per character of both texts, which is more
/// than their digits can encode.

#include "reward/expression.h"

namespace slime::reward {

/// False also where it cannot be decided: more than 10 different roots or 8 logarithms, integers of
/// more than 600 digits, division by zero, or a bound beyond the 2,048 bits. Work is bounded by the
/// number of steps.
bool are_equal_closed_forms(const Expression& left, const Expression& right);

}  // namespace slime::reward
