#pragma once

/// The two normal forms in which the math rewards compare answers as strings (spec 16.2).

#include <string>
#include <string_view>

namespace slime::reward {

/// The form of "mathd_equal": LaTeX kept, spelling variants removed. "\dfrac34" -> "\frac{3}{4}",
/// "x = 5" -> "5".
std::string mathd_normal_form(std::string_view answer);

/// The form of "sympy_equal": plain text, units removed. "\frac{\sqrt{3}}{2}" -> "sqrt(3)/2", "5
/// cm" -> "5".
std::string sympy_normal_form(std::string_view answer);

/// True for texts such as "12", "1,000", "3.0": a number within 1e-7 of an integer.
bool is_integer_text(std::string_view text);

/// Removes the commas of "1,000" by the rule of the original: a comma between a digit and exactly
/// three digits.
std::string without_thousands_commas(std::string_view text);

}  // namespace slime::reward
