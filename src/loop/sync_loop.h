#pragma once

/// The synchronous loop: generate, train, hand over, repeat. Staleness zero: no token is trained on
/// that older weights made, except what partial rollouts carried over.

#include "loop/run_schedule.h"

namespace slime::loop {

class Steps;
struct Stations;

void train_sync(Steps& run, const RunSchedule& schedule);

/// The same with the stations of a run. Returns the exit code: 0, or Interrupt::kExitCode after
/// Ctrl-C.
int run_sync_loop(Stations& stations);

/// The same without a trainer (--debug-rollout-only): generate and record.
int run_rollout_loop(Stations& stations);

}  // namespace slime::loop
