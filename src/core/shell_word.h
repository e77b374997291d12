#pragma once

/// A word as a shell takes it: of paths in commands that messages tell somebody to type.

#include <string>

namespace slime {

/// "runs/a" as it is, "my runs/a" and "it's" in quotes.
std::string shell_word(const std::string& word);

}  // namespace slime
