#pragma once

/// Attributes of `args` that the user's files mention: a flag of theirs may have a name that another system
/// gives to a flag of this program.

#include <string_view>

#include "config/run_config.h"

namespace slime::config {

/// Whether a file of the functions that the run calls has this word, "model_path": reads args.model_path, or
/// is made with it. Files are found by their paths, modules from the current folder; what they import is not
/// looked at. False where a file cannot be read.
bool is_in_users_code(const RunConfig& config, std::string_view attribute);

}  // namespace slime::config
