#pragma once

/// A list of words as exec and posix_spawn take it: argv, or an environment of NAME=value.

#include <string>
#include <vector>

namespace slime {

/// Pointers into `words`, and a null pointer at the end.
inline std::vector<char*> word_pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace slime
