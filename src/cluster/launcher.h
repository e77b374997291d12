#pragma once

/// Launcher of worker processes on any host: starts them with their connections to the controller,
/// reports their exit, kills them. Who watches it is cluster/workers.h.
///
/// One host is the case in which there is one node, and it is the controller's (LocalLauncher).

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster/run_identity.h"

namespace slime::cluster {

/// A worker is lost; the run cannot go on.
class WorkerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a worker runs.
struct WorkerPlace {
  int node = 0;         // 0: the controller's
  int device = -1;      // its GPU among those that the node shows; -1: all of them
  int num_devices = 1;  // from that one on: more where it gives some to processes of its own
  bool operator==(const WorkerPlace&) const = default;
};

struct WorkerOrder {
  std::string name;  // "rank 1", for messages
  WorkerPlace place;
  std::vector<std::string> command;  // program and arguments; an empty program: this one
  /// What the process finds in its environment. The token is put there by whoever starts it: a node has it,
  /// and no frame carries it.
  RunIdentity identity;
  std::filesystem::path log;  // on its node; what it prints
  bool has_data = false;      // a second connection
};

/// A worker that was started. Its end kills the process, if it is still there.
class WorkerProcess {
 public:
  virtual ~WorkerProcess() = default;
  /// "process 712", and where it is not on this host "process 712 on 10.0.0.2".
  virtual std::string name() const = 0;
  /// "ended with exit code 3", once it has ended, or its node is lost; it stays unreaped.
  virtual std::optional<std::string> ending() = 0;
  /// With SIGKILL, and returns when it is gone or its node is.
  virtual void kill() = 0;
  /// The last lines that it printed, indented; empty: none.
  virtual std::string last_lines() = 0;
};

/// Descriptors are connected stream sockets, the receiver's to close.
struct StartedWorker {
  std::unique_ptr<WorkerProcess> process;
  int control = -1;  // descriptor 3 of the worker
  int data = -1;     // descriptor 4, where it was ordered
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Any thread. Throws ConfigError when the program cannot be started, WorkerFailure when the node is
  /// lost.
  virtual StartedWorker start(const WorkerOrder& order) = 0;
  virtual int num_nodes() const = 0;
  /// Under which the workers of a node are reached by those of others.
  virtual std::string address(int node) const = 0;
};

}  // namespace slime::cluster
