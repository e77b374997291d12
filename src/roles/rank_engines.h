#pragma once

/// Engines on the devices of the ranks that train, which take turns with them
/// (RunConfig::has_engine_on_each_rank). Where ranks hold the model whole (data and context parallelism)
/// each rank has one over the very weights that it trains: new weights are a new version everywhere, and
/// nothing moves. Otherwise, and where an engine is of several ranks (roles/engine_group.h), it has weights
/// of its own, which the ranks bring from device to device (sync/reshard.h).
///
/// The engine that rank 0 has or leads is in this process, the others are served by the workers of the
/// ranks that have or lead them, over a second connection. One router is before all of them.

#include <memory>
#include <vector>

#include "engine/remote/remote_engine.h"
#include "roles/engines.h"
#include "roles/trainers.h"
#include "router/router.h"

namespace slime::roles {

class RankEngines final : public Engines {
 public:
  /// As EngineHere, which rank 0's engine is like; `start` is what the other ranks make theirs of.
  /// `trainers` have opened their networks. References outlive the object.
  RankEngines(HostedTrainers& trainers, const cluster::RunIdentity& identity,
              const EngineStart& start, model::Network& network, const engine::EngineConfig& config,
              WeightVersion version, engine::RunningRequests running, bool offloads,
              const report::RunMemory& memory, const Clock& clock);
  ~RankEngines() override;
  RankEngines(const RankEngines&) = delete;
  RankEngines& operator=(const RankEngines&) = delete;

  engine::EngineClient& client() override { return router_; }
  int64_t max_request_tokens() const override { return own_->max_request_tokens(); }
  void yield_to_training() override;
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;

 private:
  const report::RunMemory& memory_;
  const engine::RunningRequests running_;
  const bool offloads_;
  router::Router router_;
  std::unique_ptr<engine::Engine> own_;
  std::vector<std::unique_ptr<engine::RemoteEngine>> others_;
};

}  // namespace slime::roles
