#pragma once

/// Prompts between buffer and rollout, each with its fate in the ledger.

#include <string>

#include "buffer/data_source.h"
#include "loop/fates.h"
#include "rollout/rollout.h"

namespace slime::loop {

/// Groups come from `prompts` and go back there; `choose`, if any, says which of those that wait come
/// first. References outlive the hooks.
void take_prompts_from(rollout::RolloutHooks& hooks, buffer::DataSource& prompts, Fates& fates,
                       buffer::ChooseWaitingFn choose = nullptr);

/// The fate of a group that the rollout dropped (RolloutHooks::on_drop): filtered, or failed for
/// the reason of its first sample that has failed.
void note_drop(Fates& fates, const Group& group, const std::string& reason);

}  // namespace slime::loop
