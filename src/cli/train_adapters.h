#pragma once

/// `slime train --adapter NAME=FLAGS ...`: several runs over one base (loop/adapter_runs.h), each with its place,
/// and whether it may begin, as of a command of its own.

#include <span>
#include <string>

#include "cli/dry_run.h"
#include "config/parse_flags.h"

namespace slime::cli {

/// `flags`: of the whole command; `arguments`: its words. Returns the exit code. Nothing begins where one of
/// the runs may not: throws ConfigError with what is wrong with each, by name.
int train_adapters(const config::ParsedFlags& flags, std::span<const std::string> arguments,
                   DryRunReader reader);

}  // namespace slime::cli
