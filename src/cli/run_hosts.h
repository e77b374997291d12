#pragma once

/// Where the processes of a run are: on this host, on the hosts whose launcher started this command on
/// each of them, or wherever Ray puts them (docs/cluster.md).

#include <span>
#include <string>

#include "config/parse_flags.h"

namespace slime::cli {

/// Trains, or serves the process that does; returns the exit code. `flags` are not complete yet.
/// `arguments`: the command's, for Ray to give to its nodes. Throws as loop::run_to_the_end().
int train_on_hosts(config::ParsedFlags& flags, std::span<const std::string> arguments);

}  // namespace slime::cli
