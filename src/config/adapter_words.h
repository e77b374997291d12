#pragma once

/// Command lines of runs that --adapter asks for: several adapters over one base.
///
///   --lora-rank 8 --lr 1e-5 --run-dir runs/x --adapter 'sums=--prompt-data a.jsonl' --adapter 'sql=--prompt-data b.jsonl --lr 3e-5'
///
/// is two runs, each with the flags of the command, its own in their place, and a folder of its own.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/parse_flags.h"

namespace slime::config {

struct AdapterWords {
  std::string name;
  std::vector<std::string> words;
};

/// `arguments`: of the command. `adapters`: what --adapter says, "NAME=FLAGS" each; blanks divide FLAGS, quotes
/// keep them together. Throws ConfigError for names that are no names of folders or come twice, and for
/// flags of what the runs share.
std::vector<AdapterWords> adapter_words(std::span<const std::string> arguments,
                                        std::span<const std::string> adapters,
                                        const std::string& run_dir);

/// Throws ConfigError where two runs, complete and valid, would write to one place.
void check_written_places(std::span<const ParsedFlags> runs);

/// Calls `act`; each line of a ConfigError that it throws then begins with "--adapter NAME: ".
void in_words_of_adapter(const std::string& name, const std::function<void()>& act);

}  // namespace slime::config
