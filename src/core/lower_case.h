#pragma once

/// Lower case of ASCII letters, for words that people type either way.

#include <algorithm>
#include <cctype>
#include <string>

namespace slime {

inline std::string lower_case(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

}  // namespace slime
