#pragma once

/// Flags of other families, said in the words of this program.
///
/// Their rows have an `Alias` in the place of a member: the flags that they mean, and how their value
/// is converted. Two words that say different things are a problem with both names.

#include "config/parse_flags.h"
#include "config/set_flag.h"

namespace slime::config {

/// Notes what the user gave; a value that it cannot have is a problem. Of the same one the last
/// counts.
void note_alias(ParsedFlags& parsed, const FlagRow& row, const Setting& setting);

/// Once all flags are known: sets those that the noted ones mean.
void resolve_aliases(ParsedFlags& parsed);

/// Conversions: updates rounded down; rollouts of samples, and of a factor; a folder of dumps.
std::string whole_updates(const std::string& value, ParsedFlags& parsed);
std::string whole_rollouts(const std::string& value, ParsedFlags& parsed);
std::string rollouts_of_samples(const std::string& value, ParsedFlags& parsed);
std::string dumps_in_folder(const std::string& value, ParsedFlags& parsed);

}  // namespace slime::config
