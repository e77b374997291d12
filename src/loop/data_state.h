#pragma once

/// Data state of a checkpoint: the position in the data, the groups that wait, and the position in the ledger.

#include "buffer/data_source.h"
#include "core/json.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "loop/step_boundary.h"

namespace slime::loop {

/// The members data_source and ledger of the run.json of the checkpoint after `step`: where the data
/// goes on, with all groups that are not final, and the position in the ledger behind its totals. Where a
/// function of the user's has sampled a step that is not taken yet: the member sampled_step too
/// (loop/sampled_step.h).
json::object data_state(int64_t step, buffer::DataSource& prompts, OutcomeLog& outcomes,
                        OpenGroups open);

/// The same of a moment that has passed, between two steps: the outcomes are rolled back to it.
json::object data_state(int64_t step, StepBoundary boundary, OutcomeLog& outcomes);

}  // namespace slime::loop
