#pragma once

/// The subcommands of `slime`: one small file each, no logic. Help, completion and guesses of mistyped
/// words come from this table and from what each command says of its options.

#include <span>
#include <string>
#include <vector>

#include "help/manual.h"
#include "help/verbs.h"

namespace slime::cli {

/// `arguments` are those after the command's name. Returns the exit code.
using CommandFn = int (*)(std::span<const std::string> arguments);

/// Title in the list of commands.
enum class CommandGroup {
  kOther,
  kTraining,
  kModels,
  kRuns,
  kData,
  kPlanning,
  kMachine,
  kInternal
};

struct Command {
  const char* name;
  const char* summary;  // one line
  CommandFn run;
  CommandGroup group = CommandGroup::kOther;
};

/// All of them, in the order of the help text.
std::span<const Command> commands();
std::vector<help::Verb> verbs();
/// The options of a command, as it says them itself.
help::Manual manual_of(const Command& command);

}  // namespace slime::cli
