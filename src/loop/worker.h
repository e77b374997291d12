#pragma once

/// A data-parallel rank other than 0: what `slime worker` runs (loop/other_ranks.h is the other
/// end).

namespace slime::loop {

/// Serves the controller behind this socket until it says stop. Returns the exit code. A failure is
/// reported to the controller, which ends the process. Throws ConfigError when there is no
/// controller.
int run_worker(int control_descriptor);

}  // namespace slime::loop
