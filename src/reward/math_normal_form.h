#pragma once

/// The two normal forms in which the math rewards compare answers as strings (spec 16.2).

#include <string>
#include <string_view>

#include "reward/grading.h"

namespace slime::reward {

/// The form of "mathd_equal": LaTeX kept, spelling variants removed. "\dfrac34" -> "\frac{3}{4}",
/// "x = 5" -> "5". What stands before the sign may be anything of at most two characters; strictly,
/// it has to be a name: "0=5" stays.
std::string mathd_normal_form(std::string_view answer, Grading grading);

/// The form of "sympy_equal": plain text, units removed. "\frac{\sqrt{3}}{2}" -> "sqrt(3)/2", "5
/// cm" -> "5". Units are removed wherever their letters occur, and integers are doubles; strictly,
/// units are words ("Monday" stays) and integers keep all their digits.
std::string sympy_normal_form(std::string_view answer, Grading grading);

/// True for texts such as "12", "1,000", "3.0": a number within 1e-7 of an integer; strictly, within
/// the rounding of a double.
bool is_integer_text(std::string_view text, Grading grading);

/// Removes the commas of "1,000" by the rule of the original: a comma between a digit and exactly
/// three digits.
std::string without_thousands_commas(std::string_view text);

}  // namespace slime::reward
