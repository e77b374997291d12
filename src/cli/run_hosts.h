#pragma once

/// Hosts of a run: this one, those whose launcher started the same command on each, or the nodes of
/// a Ray cluster (docs/cluster.md).

#include <span>
#include <string>

#include "config/parse_flags.h"

namespace slime::cli {

/// Trains, or serves the process that does; returns the exit code. `flags` are not complete yet.
/// `arguments`: the command's, for Ray to give to its nodes. Throws as loop::run_to_the_end().
int train_on_hosts(config::ParsedFlags& flags, std::span<const std::string> arguments);

}  // namespace slime::cli
