#pragma once

/// The part of a checkpoint that is not weights.

#include "buffer/data_source.h"
#include "core/json.h"
#include "loop/fates.h"
#include "loop/group_source.h"
#include "loop/step_boundary.h"

namespace slime::loop {

/// The members data_source and ledger of the run.json of the checkpoint after `step`: where the data
/// goes on, with all groups that are not final, and the position in the ledger behind its totals. Where a
/// function of the user's has drawn a step that is not taken yet: the member drawn_step too
/// (loop/drawn_step.h).
json::object data_state(int64_t step, buffer::DataSource& prompts, Fates& fates, OpenGroups open);

/// The same of a moment that has passed, between two steps: the fates are rolled back to it.
json::object data_state(int64_t step, StepBoundary boundary, Fates& fates);

}  // namespace slime::loop
