#pragma once

/// The subcommands of `slime`: one small file each, no logic.

#include <span>
#include <string>

namespace slime::cli {

/// `arguments` are those after the command's name. Returns the exit code.
using CommandFn = int (*)(std::span<const std::string> arguments);

struct Command {
  const char* name;
  const char* summary;
  CommandFn run;
};

/// All of them, in the order of the help text.
std::span<const Command> commands();

}  // namespace slime::cli
