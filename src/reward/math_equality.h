#pragma once

/// Equality of a given and a true math answer: the two graders of the math rewards (spec 16.2).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/grading.h"

namespace slime::reward {

/// Same normal form as a string. Nothing equals nothing only.
bool mathd_equal(std::optional<std::string_view> given, std::optional<std::string_view> truth,
                 Grading grading);

/// Same plain form, or the same expression in every element of a tuple or interval. Strictly, a
/// form of which nothing is left ("day", a unit) equals nothing.
bool sympy_equal(std::string_view given, std::string_view truth, Grading grading);

/// One of the two. Answers of more than 16 KiB are wrong unless they are the truth letter by
/// letter.
bool is_correct(std::string_view given, std::string_view truth, Grading grading);

// The parts, for the tests.

/// "[0,1)" -> "0", "1"; "1,000" -> "1000"; "a,b" -> "a,b".
std::vector<std::string> split_tuple(std::string_view text);
/// "1/2", "-3/4": as fractions they have to be reduced.
bool is_fraction(std::string_view text);
/// `text` is "(truth)-(given)". At most two different letters and no exponent that could explode.
bool allows_evaluation(std::string_view text);

}  // namespace slime::reward
