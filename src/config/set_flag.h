#pragma once

/// One flag's words made a value of the configuration, and back.

#include <optional>
#include <string>
#include <vector>

#include "config/flag_table.h"
#include "core/json.h"

namespace slime::config {

/// One flag with the words behind it.
struct Setting {
  std::string name;
  std::vector<std::string> values;
  std::string where;            // "" for the command line, else the file
  bool may_be_own_key = false;  // of --custom-config-path
  /// As the file has it: what is no flag keeps its type for functions of the user's.
  std::optional<json::value> of_file = std::nullopt;
};

/// Sets the flag's member; `adds`: to the values of a list. Returns what is wrong, or nothing. A flag
/// without member is only looked at.
std::optional<std::string> set_flag(const FlagRow& flag, const Setting& setting, bool adds,
                                    RunConfig& config);

/// The flag's value; null for an optional one without, and for a flag without member.
json::value value_of(const FlagRow& flag, const RunConfig& config);

/// Words of a flag without member, as a plug-in would read them from `args`.
json::value value_of_words(const std::vector<std::string>& words);

}  // namespace slime::config
