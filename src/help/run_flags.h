#pragma once

/// The manual of the flag table: `slime train --help`, and that of every command that takes the flags of a run.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/flag_table.h"
#include "help/manual.h"

namespace slime::help {

/// Group of flags on one subject: a topic of --help.
struct FlagTopic {
  std::string_view word;                        // "reward"
  std::string_view title;                       // "Reward"
  std::string_view page;                        // "docs/rewards.md"; empty: none
  std::vector<config::FlagGroup> groups = {};   // all flags of these
  std::vector<std::string_view> flags = {};     // and these
  std::vector<std::string_view> prefixes = {};  // and those whose names begin so
};

/// Every flag is in one of them at least.
const std::vector<FlagTopic>& flag_topics();
/// The flags that people begin with, in groups.
const std::vector<Section>& first_flags();

Manual run_manual(std::string command, std::string summary, std::vector<std::string> usage);

/// Constraints on a flag's values, as validation words them: "should be at least 1", "needs --use-kl-loss". Found by
/// validating values near usual bounds, and each of its words.
std::vector<std::string> rules_of(const config::FlagRow& flag);

}  // namespace slime::help
