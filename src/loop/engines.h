#pragma once

/// The engines of a run, as a loop sees them: one address for requests, and the two moments at
/// which trainer and engines meet. In this process today; workers and addresses are siblings of
/// EngineHere (docs/decisions/0074-stations.md).

#include <memory>

#include "core/clock.h"
#include "engine/engine.h"
#include "loop/run_memory.h"
#include "model/network.h"

namespace slime::loop {

class Engines {
 public:
  virtual ~Engines() = default;

  /// Where rollout and evaluation send their requests.
  virtual engine::EngineClient& client() = 0;

  /// Before training: from the return of this call until update_weights() nothing is generated and
  /// nobody reads the weights. Requests that ran keep their tokens and wait. Where trainer and
  /// engine do not fit side by side, the cache's memory goes back.
  virtual void yield_to_training() = 0;

  /// After training: the weights are new, and requests go on with them. Throws ConfigError when
  /// the memory of the cache does not come back.
  virtual void update_weights(WeightVersion version) = 0;
};

/// For runs that generate nothing (rows, dumps).
class NoEngines final : public Engines {
 public:
  engine::EngineClient& client() override;  // BugError
  void yield_to_training() override {}
  void update_weights(WeightVersion) override {}
};

/// One engine in this process, over the weights that the trainer updates in place: new weights are
/// a new version, and nothing moves.
class EngineHere final : public Engines {
 public:
  /// `network`, `clock` and `memory` outlive the object. `offloads`: the cache gives its memory
  /// back while training. Throws ConfigError when the cache does not fit.
  EngineHere(model::Network& network, const engine::EngineConfig& config, WeightVersion version,
             bool offloads, const RunMemory& memory, const Clock& clock);

  engine::EngineClient& client() override { return *engine_; }
  void yield_to_training() override;
  void update_weights(WeightVersion version) override;

 private:
  const RunMemory& memory_;
  const bool offloads_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace slime::loop
