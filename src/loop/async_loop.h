#pragma once

#include "setup/run_schedule.h"

namespace slime::loop {

class Steps;

/// Trains while the engines generate (docs/async.md).
void train_async(Steps& run, const setup::RunSchedule& schedule);

}  // namespace slime::loop
