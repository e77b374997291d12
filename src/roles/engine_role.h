#pragma once

/// The engine role of a worker, served to the controller over the worker's second connection: an engine
/// with weights of its own, which mean nothing until the controller has sent some, or one over the
/// weights that the trainer role of the same worker trains.
///
/// With weights of its own it plans the memory of its device: on a GPU nobody else has any of it.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/run_identity.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "engine/remote/engine_server.h"
#include "model/network.h"
#include "roles/engine_group.h"
#include "roles/engine_ranks.h"
#include "roles/rank_tasks.h"
#include "roles/session_frames.h"
#include "setup/prompts.h"

namespace slime::roles {

class EngineRole final {
 public:
  /// `identity`: of whom the connection has to be. `clock` outlives the role. `on_lost` ends the process,
  /// with the reason, when a rank of the engine is lost. Throws ConfigError for a model that cannot be
  /// served, and for a device that it does not fit on.
  EngineRole(const EngineStart& start, const cluster::RunIdentity& identity, const Clock& clock,
             std::function<void(const std::string&)> on_lost);
  /// Over `weights`, which the trainer changes while the engine is paused; they are slices where this
  /// rank leads `group`, which is null elsewhere. Where trainer and engine do not take turns the engine
  /// has a copy of them, or codes, which updates make anew. Both outlive the role.
  EngineRole(const EngineStart& start, const cluster::RunIdentity& identity,
             model::Network& weights, EngineGroup* group, const Clock& clock);

  EngineReady ready() const;
  /// What it has, between two connections; without its process.
  KeptEngineState state() const;

  /// Until the controller closes the connection, which this owns; how many requests came. Throws
  /// net::FrameError when it sends what means nothing, or is not of this run or of an older epoch.
  int64_t serve(int descriptor);

 private:
  void start(const EngineStart& start, int64_t kv_cache_bytes, EngineGroup* group,
             const Clock& clock);
  void tell_activity(engine::Activity activity);

  const cluster::RunIdentity identity_;
  setup::ModelText text_;
  std::unique_ptr<EngineRanks> ranks_;  // null: the engine is this process alone
  /// Null: the trainer's. The second one of an adapter has the numbers of the first.
  std::unique_ptr<model::Network> first_, other_;
  engine::WeightSource in_place_ = engine::InPlace{};  // of updates that bring no weights
  engine::TwoNetworks networks_;                       // which of them the engine computes with
  std::string device_;
  std::vector<std::string> memory_;
  std::mutex mutex_;
  engine::EngineServer* server_ = nullptr;               // guarded by mutex_
  engine::Activity activity_ = engine::Activity::kIdle;  // guarded by mutex_; the last
  std::unique_ptr<engine::Engine> engine_;               // last: its thread uses the above
};

}  // namespace slime::roles
