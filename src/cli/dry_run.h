#pragma once

/// `slime train ... --dry-run`: the start of a run without the run (loop/trial_start.h), printed.

#include <string>

#include "config/parse_flags.h"

namespace slime::cli {

/// For whom a dry run is printed.
enum class DryRunReader { kPerson, kProgram };

/// Prints which flags have no effect, what is not on this machine and what a run would refuse; for a
/// program as one JSON object, with all flags as users' functions have them in `args`.
/// `place`: what the run would be on (loop::choose_device). Returns 0 when a run would begin with
/// these flags, 2 when it would refuse some.
int dry_run(config::ParsedFlags& flags, const std::string& place, DryRunReader reader);

}  // namespace slime::cli
