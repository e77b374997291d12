#pragma once

/// Process of an engine beside the trainer, from its start until it is lost or the run ends: one that
/// ends with the trainer, or one of a session, which goes on (roles/kept_engines.h).

#include <chrono>

#include "roles/rank_tasks.h"

namespace slime::roles {

class EngineProcess {
 public:
  /// The connection that take_data() gave is closed before.
  virtual ~EngineProcess() = default;

  /// It becomes the engine. Throws cluster::WorkerFailure, and ConfigError for what it refuses.
  virtual EngineReady begin(const EngineStart& start, std::chrono::milliseconds limit) = 0;
  /// Behind begin(), once: the connection for a RemoteEngine, which is the caller's.
  virtual int take_data() = 0;
  /// It was an engine before and has the weights that are published.
  virtual bool has_weights() const { return false; }

  virtual bool has_failed() = 0;
  /// Throws cluster::WorkerFailure, with how it ended, when it has failed.
  virtual void check_alive() = 0;
  /// It does not answer any more, and another one takes its place.
  virtual void give_up() {}
};

}  // namespace slime::roles
