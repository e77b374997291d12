#pragma once

/// Completion scripts for shells: commands, options, words of a fixed set, files, runs of this folder, and the models
/// and data sets in the cache of Hugging Face. A script holds all it needs, so that the Tab key starts no program.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "help/manual.h"
#include "help/verbs.h"

namespace slime::help {

struct CompletedVerb {
  Verb verb;
  Manual manual;
};

/// bash, zsh or fish; nothing for another one.
std::optional<std::string> completion_script(std::string_view shell,
                                             std::span<const CompletedVerb> verbs);

// One for each shell.
std::string bash_completion(std::span<const CompletedVerb> verbs);
std::string zsh_completion(std::span<const CompletedVerb> verbs);
std::string fish_completion(std::span<const CompletedVerb> verbs);

// What all of them need.

/// Options that are offered: those that have an effect, and the help.
std::vector<Option> offered_options(const Manual& manual);
/// First positional argument of a command, or its subcommands. Its value is empty where it takes neither.
Option argument_of(const Manual& manual);
/// "all" and the topics: words behind --help.
std::vector<std::string> words_of_help(const Manual& manual);
/// The meaning in one short line without line ends.
std::string short_meaning(const Option& option);

}  // namespace slime::help
