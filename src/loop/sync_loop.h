#pragma once

/// The synchronous loop: generate, train, hand over, repeat. Staleness zero: no token is trained on
/// that older weights made, except what partial rollouts carried over.

#include "setup/run_schedule.h"

namespace slime::loop {

class Steps;

void train_sync(Steps& run, const setup::RunSchedule& schedule);

/// The same without a trainer (--debug-rollout-only): generate and record.
void generate_only(Steps& run, const setup::RunSchedule& schedule);

}  // namespace slime::loop
