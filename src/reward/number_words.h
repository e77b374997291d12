#pragma once

/// Numbers that are written as English words: "twelve", "one half", "twenty-five".

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "reward/formula.h"

namespace slime::reward {

/// The number that begins the text, and how many bytes name it; nothing when none does.
std::optional<std::pair<Formula, std::size_t>> number_in_words(std::string_view text);

}  // namespace slime::reward
