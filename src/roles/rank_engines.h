#pragma once

/// Engines over the ranks that train, in their workers (RunConfig::has_engines_over_ranks).
///
/// Where each rank has one (has_engine_on_each_rank) they take turns with the trainer. Ranks that hold
/// the model whole (data and context parallelism) have theirs over the very weights that they train: new
/// weights are a new version everywhere, and nothing moves. Otherwise, and where an engine is of several
/// ranks (roles/engine_group.h), it has weights of its own, which the ranks bring from device to device
/// (sync/reshard.h). Elsewhere there is one engine, over rank 0's weights, or over all of them gathered
/// there; in asynchronous runs it has a copy and generates meanwhile.
///
/// The workers of the ranks that lead engines serve them over a second connection. One router is before
/// all of them.

#include <functional>
#include <memory>
#include <vector>

#include "engine/remote/remote_engine.h"
#include "roles/engines.h"
#include "roles/trainers_apart.h"
#include "router/router.h"

namespace slime::roles {

struct RankEnginesConfig {
  cluster::RunIdentity identity;
  EngineStart start;  // what the ranks make theirs of
  engine::RunningRequests running = engine::RunningRequests::kRecompute;  // at an update
  bool offloads = false;  // keys and values give their memory back while the weights are trained
  /// What an engine does from now on, from any thread.
  std::function<void(int index, engine::Activity)> hear;
};

class RankEngines final : public Engines {
 public:
  /// `trainers` can train, and outlive the object, as do the other references. `published`: a network of
  /// the whole model in this process, which gets the weights of each update too, for evaluations beside
  /// training; or null.
  RankEngines(TrainersApart& trainers, const RankEnginesConfig& config, WeightVersion version,
              std::unique_ptr<model::Network> published, const report::RunMemory& memory,
              const Clock& clock);
  ~RankEngines() override;
  RankEngines(const RankEngines&) = delete;
  RankEngines& operator=(const RankEngines&) = delete;

  engine::EngineClient& client() override { return router_; }
  int64_t max_request_tokens() const override { return max_request_tokens_; }
  void yield_to_training() override;
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;
  void go_on() override;
  double last_copy_seconds() override;
  model::Network* own_weights() override { return published_.get(); }

 private:
  TrainersApart& trainers_;
  const report::RunMemory& memory_;
  const engine::RunningRequests running_;
  const bool takes_turns_;
  const bool offloads_;
  const std::unique_ptr<model::Network> published_;
  router::Router router_;
  std::vector<std::unique_ptr<engine::RemoteEngine>> engines_;
  int64_t max_request_tokens_ = 0;
};

}  // namespace slime::roles
