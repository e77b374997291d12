#pragma once

/// Several runs over one base, in one process: adapters that are trained side by side (--adapter).
///
///   stations of "sums"  folder, ledger, data, trainer --.
///   stations of "sql"   folder, ledger, data, trainer ---+--- one base, one engine (loop/shared_base.h)
///
/// Each is a run as any other: its steps, checkpoints, metrics and its ledger are those that it has alone, and
/// after a kill each goes on with its own newest checkpoint. docs/decisions/0161-several-adapters.md.

#include <vector>

#include "config/parse_flags.h"
#include "core/clock.h"

namespace slime::loop {

/// `flags` of each run are complete and valid and have its name (RunConfig::adapter_name). Returns the exit
/// code. A run that fails ends alone; when the others have ended its error is thrown.
int run_adapters(const std::vector<config::ParsedFlags>& runs, const Clock& clock);

}  // namespace slime::loop
