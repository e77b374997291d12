#pragma once

/// An engine on the device of every trainer rank, over the very weights that the rank trains: where
/// ranks hold the model whole (data and context parallelism) and take turns with their engines. New
/// weights are a new version everywhere, and nothing moves.
///
/// Rank 0's engine is in this process, the others are served by the ranks' workers over a second
/// connection. One router is before all of them.

#include <memory>
#include <vector>

#include "engine/remote/remote_engine.h"
#include "loop/engines.h"
#include "loop/trainers.h"
#include "router/router.h"

namespace slime::loop {

/// Whether a run has such engines: on GPUs wherever they can be, on CPUs, whose cores they share, where
/// --rollout-num-gpus is the number of ranks and --colocate is given.
bool has_engine_on_each_rank(const config::RunConfig& config);

class RankEngines final : public Engines {
 public:
  /// As EngineHere, which rank 0's engine is like; `start` is what the other ranks make theirs of.
  /// `trainers` have opened their networks. References outlive the object.
  RankEngines(HostedTrainers& trainers, const cluster::RunIdentity& identity,
              const EngineStart& start, model::Network& network, const engine::EngineConfig& config,
              WeightVersion version, engine::RunningRequests running, bool offloads,
              const RunMemory& memory, const Clock& clock);
  ~RankEngines() override;
  RankEngines(const RankEngines&) = delete;
  RankEngines& operator=(const RankEngines&) = delete;

  engine::EngineClient& client() override { return router_; }
  int64_t max_request_tokens() const override { return own_->max_request_tokens(); }
  void yield_to_training() override;
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;

 private:
  const RunMemory& memory_;
  const engine::RunningRequests running_;
  const bool offloads_;
  router::Router router_;
  std::unique_ptr<engine::Engine> own_;
  std::vector<std::unique_ptr<engine::RemoteEngine>> others_;
};

}  // namespace slime::loop
