#pragma once

/// The manual of a command whose options are CLI11's.

#include <CLI/CLI.hpp>
#include <string>

#include "help/manual.h"

namespace slime::cli {

/// Value words say what is meant, for help and completion: an option or argument of type name MODEL, RUN, FILE or
/// FOLDER is completed with those.
help::Manual manual_of(const CLI::App& app);

}  // namespace slime::cli
