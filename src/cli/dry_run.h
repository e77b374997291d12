#pragma once

/// `slime train ... --dry-run`: all that can be said about the flags without a run.

#include "config/parse_flags.h"

namespace slime::cli {

/// Prints which flags have no effect, which paths are not on this machine and which flags a run
/// refuses. Reads flags, the evaluation file and the model's config.json where they are there;
/// neither weights nor data nor users' functions, and it writes nothing. Returns 0 when a run would
/// begin with these flags, 2 when it would refuse some.
int dry_run(config::ParsedFlags& flags);

}  // namespace slime::cli
