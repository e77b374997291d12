#pragma once

/// A worker process on this host, with connected sockets for descriptors.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "cluster/launcher.h"

namespace slime::cluster {

/// Of a worker: descriptors 3 and 4.
struct WorkerSockets {
  int control = -1;
  int data = -1;  // -1: none
};

/// Starts the process in a group of its own; `sockets` stay the caller's to close. `device`: the value
/// of CUDA_VISIBLE_DEVICES; nothing: this process's. Throws ConfigError when that fails.
std::unique_ptr<WorkerProcess> start_process(const WorkerOrder& order, const WorkerSockets& sockets,
                                             const std::optional<std::string>& device);

/// Starts a process that goes on when this one ends: in a session of its own, which no terminal's signals
/// reach, without connections. Returns its number; who starts it reaps it while it lives. Throws
/// ConfigError.
pid_t start_detached(const WorkerOrder& order, const std::optional<std::string>& device);

/// Workers on this host alone.
class LocalLauncher final : public Launcher {
 public:
  StartedWorker start(const WorkerOrder& order) override;
  int num_nodes() const override { return 1; }
  std::string address(int node) const override;
};

}  // namespace slime::cluster
