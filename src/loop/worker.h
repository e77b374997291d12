#pragma once

/// A worker process: what `slime worker` runs. It becomes a rank of a run and hosts its roles, of
/// which there is one, the trainer (loop/trainer_role.h); loop/trainer_workers.h is the other end.

namespace slime::loop {

/// Serves the controller behind this socket until it says stop. Returns the exit code. A failure is
/// reported to the controller, which ends the process. Throws ConfigError when there is no
/// controller.
int run_worker(int control_descriptor);

}  // namespace slime::loop
