#pragma once

/// One rank's place in an engine of several ranks over the devices of ranks that train: the first of
/// so many neighbours leads and has the requests, the others follow (engine/ranks/followers.h). They
/// meet on a mesh of their own, because the engine divides the model otherwise than the trainer does. On GPUs
/// of one host small sums go through memory that they write to directly.

#include <chrono>
#include <memory>
#include <string>

#include "cluster/run_identity.h"
#include "comm/mesh.h"
#include "engine/engine.h"
#include "engine/ranks/followers.h"
#include "model/network.h"

namespace slime::roles {

struct EngineGroupConfig {
  int size = 1;  // ranks of an engine, at least 2; divides those that train
  bool is_on_gpus = false;
  std::string address;  // of this rank's host
  cluster::RunIdentity identity;
  std::chrono::milliseconds timeout{600'000};  // of a collective of the engine
};

class EngineGroup final {
 public:
  /// All ranks that train make theirs together, over `trainers`. Throws comm::GroupError when those of
  /// an engine do not find one another.
  EngineGroup(const comm::Mesh& trainers, const EngineGroupConfig& config);
  /// Behind the engine, or behind follow().
  ~EngineGroup();
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

  bool leads() const { return mesh_->rank() == 0; }
  /// Of the engine's ranks.
  const comm::Mesh& mesh() const { return *mesh_; }

  /// For the engine of the rank that leads.
  engine::MakeStepRunner make_runner();

  /// Of a rank that follows: does what the leader tells with its slices, `network`, which somebody else
  /// gives new weights while the engine is paused. Returns when the leader is gone, or after
  /// stop_following(), which any thread may call. Throws what engine::FollowingRank does; the leader
  /// sees the end of the connection then.
  void follow(model::Network& network, const model::Precision& precision);
  void stop_following();

 private:
  void meet_followers(const EngineGroupConfig& config);
  void meet_leader(const EngineGroupConfig& config, const std::string& address);

  std::unique_ptr<comm::Mesh> mesh_;
  std::unique_ptr<engine::Followers> followers_;  // of the leader
  int to_leader_ = -1;                            // a connected socket, of the others
};

}  // namespace slime::roles
