#pragma once

/// Equality of an answer and the right one, as `math` grades it (strict).

#include <string_view>

namespace slime::reward {

/// Both are read as typed values (reward/answer.h) and compared as such: numbers and functions exactly,
/// sets and several answers without order, intervals and inequalities as sets of numbers, equations by
/// their solutions, quantities in one unit. The order of the two matters little: what a question leaves
/// open (a unit that is not named, "x =" that is left out) may stand on one side alone. Answers of more
/// than 16 KiB are right when they are the truth letter by letter.
bool are_equal_answers(std::string_view truth, std::string_view given);

}  // namespace slime::reward
