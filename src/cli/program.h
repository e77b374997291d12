#pragma once

/// Common parts of the main functions of this project's programs.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace slime::cli {

/// The arguments of the process, whose secrets are overwritten for other users of the machine. Sets
/// up allocator, limit of open files and signals: a write that fails is an error, not the end of the process.
std::vector<std::string> begin_program(int argc, char** argv);

/// The exit code of `command`. Its error is printed to standard error after `name`: 2 for a
/// ConfigError, otherwise 1, also where standard output cannot take what was written; 141 when its
/// reader went away.
int run_command(std::string_view name, CommandFn command, std::span<const std::string> arguments);

}  // namespace slime::cli
