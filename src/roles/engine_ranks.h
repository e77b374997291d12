#pragma once

/// The further ranks of an engine whose first rank is this process: worker processes of this host, each
/// with its slices of the model (engine/ranks/followers.h). They and the first rank are one engine: when
/// one of them is lost, so is the engine.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cluster/local_process.h"
#include "cluster/run_identity.h"
#include "cluster/workers.h"
#include "comm/socket_mesh.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "engine/ranks/followers.h"
#include "model/config.h"
#include "roles/rank_tasks.h"

namespace slime::roles {

struct EngineRanksConfig {
  /// Of each, but for its place: `num_ranks` is that of all, this one included.
  EngineRankStart start;
  std::string noun = "engine_rank";  // what one is in messages and in its log's name
  cluster::RunIdentity identity;
  std::filesystem::path log_folder;
  std::chrono::milliseconds silence_limit{20'000};  // of a process, without a heartbeat
  /// Ends this process, with the reason; does not return. Any thread.
  std::function<void(const std::string&)> on_lost;
};

/// Throws ConfigError, with the reason, when an engine cannot have so many ranks.
void check_engine_ranks(const model::ModelConfig& model, int64_t num_ranks, const char* flag);

class EngineRanks final {
 public:
  /// Starts the processes and meets them. `clock` outlives the object. Throws ConfigError when one does
  /// not start.
  EngineRanks(EngineRanksConfig config, const Clock& clock);
  /// Behind the engine.
  ~EngineRanks();
  EngineRanks(const EngineRanks&) = delete;
  EngineRanks& operator=(const EngineRanks&) = delete;

  /// On which this process is rank 0.
  const comm::Mesh& mesh() const { return *mesh_; }
  engine::Followers& followers() { return *followers_; }
  /// For the engine: its runner leads the others.
  engine::MakeStepRunner make_runner();

 private:
  /// Says who is to blame for what this process noticed.
  void lose(const std::string& what);
  void end(const std::string& why);

  const EngineRanksConfig config_;
  std::mutex ending_;  // locked once, by whoever ends the process
  cluster::LocalLauncher launcher_;
  comm::Rendezvous rendezvous_;
  std::unique_ptr<engine::Followers> followers_;
  std::unique_ptr<cluster::Workers> workers_;
  std::unique_ptr<comm::Mesh> mesh_;
};

/// Becomes the rank that `start` says; returns when rank 0 closes `descriptor`, which this owns. Throws
/// what engine::FollowingRank does, and ConfigError.
void follow_engine(const EngineRankStart& start, const cluster::RunIdentity& identity,
                   int descriptor);

}  // namespace slime::roles
