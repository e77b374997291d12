#pragma once

/// White space of message formats: ASCII's.

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace slime::text {

inline constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

inline bool is_white_space(char byte) { return kWhiteSpace.find(byte) != std::string_view::npos; }

/// How many bytes of it a text begins with.
inline std::size_t leading_white_space(std::string_view text) {
  return std::min(text.find_first_not_of(kWhiteSpace), text.size());
}

inline bool is_all_white_space(std::string_view text) {
  return leading_white_space(text) == text.size();
}

/// Up to the last byte that is none.
inline std::string_view without_trailing_white_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

inline std::string_view without_white_space_around(std::string_view text) {
  return without_trailing_white_space(text.substr(leading_white_space(text)));
}

}  // namespace slime::text
