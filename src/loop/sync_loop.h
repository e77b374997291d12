#pragma once

/// The synchronous loop: generate, train, hand over, repeat.

namespace slime::loop {

class TrainingRun;

/// Returns the exit code: 0, or Interrupt::kExitCode after Ctrl-C.
int run_sync_loop(TrainingRun& run);

}  // namespace slime::loop
