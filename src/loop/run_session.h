#pragma once

/// Session of a run (--rollout-session-id): the engines and the generated steps that an earlier trainer
/// left (docs/decisions/0138-engines-outlive-trainers.md).

#include <string>
#include <vector>

#include "loop/stations.h"

namespace slime::loop {

/// Before anything of the run is built. Nothing happens without the flag. Returns notes. Throws ConfigError
/// when the settings are others than those of the engines that are there, which stay as they are.
std::vector<std::string> open_session(Stations& run);

/// Behind the ledger: groups of steps that no checkpoint has come first. Returns notes.
std::vector<std::string> replay_unsaved(Stations& run);

}  // namespace slime::loop
