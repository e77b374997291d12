#pragma once

/// A worker process: what `slime worker` runs. The controller's first task says what it becomes: a
/// rank that trains (roles/trainer_role.h; roles/trainers_apart.h is the other end) or an engine
/// beside the trainer (roles/engine_role.h; roles/engine_workers.h).
#include "cluster/run_identity.h"

namespace slime::roles {

/// Serves the controller behind this socket, which gave it its identity, until it says stop. Returns the exit code. A failure is
/// reported to the controller, which ends the process. Throws ConfigError when there is no
/// controller.
int run_worker(int control_descriptor, const cluster::RunIdentity& identity);

}  // namespace slime::roles
