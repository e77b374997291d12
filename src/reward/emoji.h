#pragma once

#include <string_view>

namespace slime::reward {

/// Emoji test of one character (the property Emoji of Unicode 16, without digits, #, * and the
/// letters that flags are made of).
bool is_emoji(std::string_view character);

}  // namespace slime::reward
