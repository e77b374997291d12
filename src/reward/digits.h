#pragma once

/// Decimal digits of every script.

#include <string>
#include <string_view>

namespace slime::reward {

/// Decimal digits of other scripts (full-width, Arabic, Devanagari, ...) as 0 to 9, the minus sign
/// U+2212 as "-"; all else as it is.
std::string with_ascii_digits(std::string_view text);

}  // namespace slime::reward
