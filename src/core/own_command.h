#pragma once

/// Commands of this program that messages tell somebody to type: they start with a word that the shell finds.

#include <filesystem>
#include <string>
#include <string_view>

namespace slime {

/// How a shell starts this program again.
struct StartedBy {
  std::string told;           // SLIME_COMMAND: by the wheel's command, which becomes this program
  std::string typed;          // the first word of the command line
  std::filesystem::path exe;  // this program
  std::string search;         // PATH
};

/// "slime" where the search finds this program by that name, or else the path that was typed, or the
/// program's own. A program of another name speaks of "slime" too.
std::string command_word(const StartedBy& by);

/// The command of this process: "slime report runs/a", or "build/release/slime report runs/a".
/// `rest`: verb and words, as a shell takes them (core/shell_word.h).
std::string own_command(std::string_view rest);

}  // namespace slime
