#pragma once

/// Models and data sets by name for all commands: the environment's settings, and progress of downloads on
/// standard error.

#include <string>
#include <string_view>

#include "config/parse_flags.h"
#include "hub/hub.h"

namespace slime::cli {

/// A hub with the settings of the environment. `whose`: "slime serve", begins its lines.
hub::Hub open_hub(const std::string& whose, bool may_download = true, bool refresh = false);

/// The directory of a model that a word of the command line names, or that it is.
std::string model_by_name(const std::string& word, hub::Wanted wanted, std::string_view flag,
                          const std::string& whose);

/// "; did you mean runs/first?" of a word that is neither a path nor a name; empty where nothing is like it.
std::string guess_of_model(const std::string& word);

/// "Qwen/Qwen3-0.6B", as clients call a model that was named by a word.
std::string name_of_word(const std::string& word);

/// Replaces names in the flags of a run by paths. Where nothing may be downloaded, a name that is not in the cache
/// stays one, and a note says so.
void find_names(config::ParsedFlags& flags, hub::Wanted wanted, bool may_download,
                const std::string& whose);

}  // namespace slime::cli
