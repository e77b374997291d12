#pragma once

#include <string_view>

namespace slime::reward {

/// Whether the one character is an emoji by itself (the property Emoji of Unicode 16, without
/// digits, #, * and the letters that flags are made of).
bool is_emoji(std::string_view character);

}  // namespace slime::reward
