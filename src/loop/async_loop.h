#pragma once

#include "loop/run_schedule.h"

namespace slime::loop {

class Steps;
struct Stations;

/// Trains while the engines generate (docs/async.md).
void train_async(Steps& run, const RunSchedule& schedule);

/// The same with the stations of a run. Returns the exit code of the process.
int run_async_loop(Stations& run);

}  // namespace slime::loop
