#pragma once

/// Engines in worker processes, beside the trainer: started, given the published weights, watched,
/// and started again when they die or hang.
///
/// Each has a thread here that lives through its lives, one after the other: process, connection,
/// weights, then it joins the router; when it is lost it leaves, and the next life begins after a
/// pause. What it was drawing goes on in the others meanwhile, or waits in the router.
///
/// The published weights are kept in a network of this process: an engine that comes in the middle
/// of a training step gets what the others have, whatever the trainer has made of its own by then. On
/// a GPU the network is on the trainer's device or on the host (MemoryPlan::publishes_on_host), and
/// new weights go from the trainer's device to those of the engines, where one reaches the other. The
/// published weights outlive trainers that are lost: begin_epoch() gives them the weights from which
/// those go on.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/launcher.h"
#include "cluster/run_identity.h"
#include "core/clock.h"
#include "engine/remote/remote_engine.h"
#include "kernels/gpu/locked_pages.h"
#include "model/network.h"
#include "roles/engine_process.h"
#include "roles/engines.h"
#include "roles/kept_engines.h"
#include "roles/rank_tasks.h"
#include "router/router.h"
#include "sync/publisher.h"

namespace slime::roles {

struct EngineWorkersConfig {
  int count = 1;
  EngineStart start;
  std::vector<cluster::WorkerPlace> places;  // of each
  cluster::RunIdentity identity;             // of the run as it begins
  std::filesystem::path log_folder;          // engine_0.log holds what engine 0 prints
  engine::RunningRequests running = engine::RunningRequests::kRecompute;  // at an update
  int64_t weight_piece_bytes = int64_t{16} << 20;
  sync::PublisherConfig publishes = {};             // how new weights come to them
  std::chrono::milliseconds silence_limit{20'000};  // of a process, without a heartbeat

  /// False: an engine that is lost stays away, and the run ends with the last one.
  bool starts_again = false;
  /// Of a session: its engines go on when this ends. Null: they end with it.
  KeptEngines* kept = nullptr;
  int64_t max_restarts = 3;                    // of an engine that draws nothing between them
  std::chrono::milliseconds first_pause{250};  // before a restart; doubled without progress
  /// How often and after which time its progress is looked at, and how long there may be none.
  std::chrono::milliseconds check_interval{30'000}, first_wait{0}, progress_limit{30'000};
};

/// One class because engines, published weights and router are one thing to the loop, and who may
/// serve follows from all three.
class EngineWorkers final : public Engines {
 public:
  /// Starts the processes and waits until all serve the weights of `published`, as `version`. Where
  /// engines have codes it has them too. It and `clock` outlive the object, as does `launcher`.
  /// `trained`: the network whose weights they are, where it is whole in this process, for which new ones
  /// go from there; or null. `hear`: what an engine does from now on, from any thread. Throws ConfigError
  /// when one does not start.
  EngineWorkers(EngineWorkersConfig config, model::Network& published, model::Network* trained,
                WeightVersion version, cluster::Launcher& launcher, const Clock& clock,
                Hear hear = nullptr);
  ~EngineWorkers() override;
  EngineWorkers(const EngineWorkers&) = delete;
  EngineWorkers& operator=(const EngineWorkers&) = delete;

  engine::EngineClient& client() override { return router_; }
  void yield_to_training() override {}
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;
  int64_t max_request_tokens() const override { return max_request_tokens_; }
  double last_copy_seconds() override { return longest(&Transfer::copy_seconds); }
  double last_transfer_seconds() override { return longest(&Transfer::seconds); }
  std::optional<UpdateTraffic> last_traffic() override;
  model::Network* own_weights() override { return &published_; }
  void tell_by(std::function<void(const std::string&)> tell) override;
  void call_behind_writing(std::function<void(const std::filesystem::path&)> call) override;
  void hear_by(Hear hear) override;
  bool outlive_trainers() const override { return true; }
  void begin_epoch(int64_t epoch, WeightVersion version, model::Network* trained,
                   const FetchWeights& fetch) override;

 private:
  using Transfer = engine::RemoteEngine::Transfer;
  /// What became of one life of an engine.
  struct Ending {
    std::string why;
    bool has_served = false;      // it had joined the router
    bool has_progressed = false;  // and sampled something
  };

  void end_lives();
  void live(int index, const std::stop_token& stop);
  Ending live_once(int index, const std::stop_token& stop);
  std::unique_ptr<EngineProcess> make_process(int index, const cluster::RunIdentity& identity);
  /// The current weights, once they are whole, and a place in the router. Throws std::runtime_error.
  /// `has_weights`: it has them already.
  router::EngineId take_in(int index, engine::RemoteEngine& remote, bool has_weights,
                           const std::stop_token& stop);
  // With weights_mutex_ held.
  void publish(const FetchWeights& fetch);
  /// `before_N`: what engines have (Publisher::prepare).
  void update_from(model::Network& network, const Tensor& before_N);
  /// Until it is lost or `stop`; why it is lost.
  std::string watch(int index, engine::RemoteEngine& remote,
                    const std::function<bool()>& has_process_failed, const std::stop_token& stop);
  /// Says what it computes on and how new weights come to it.
  void introduce(int index, const EngineReady& ready, const Transfer& transfer);
  /// Of the last update of all engines.
  double longest(double Transfer::*seconds);
  void note(int index, bool serves, const std::string& failure);
  void say(const std::string& line);
  void hear(int index, engine::Activity activity);
  /// False: `stop` came first.
  bool pause(std::chrono::milliseconds time, const std::stop_token& stop);

  bool has_device(int index) const { return config_.places.at(index).device >= 0; }

  const EngineWorkersConfig config_;
  cluster::Launcher& launcher_;
  const Clock& clock_;
  model::Network& published_;
  model::Network* trained_;                 // guarded by weights_mutex_
  const bool has_open_gpu_;                 // this process has: it may write to others
  std::list<kernels::LockedPages> locked_;  // of published_, on the host of a GPU
  /// Shared: who sends the published weights to one engine; exclusive: an update of all.
  std::shared_mutex weights_mutex_;
  WeightVersion version_;  // guarded by weights_mutex_, as the next; of published_
  bool is_whole_ = true;   // false: trainers were lost while they brought new ones
  std::function<void(const std::filesystem::path&)> behind_writing_;  // guarded by weights_mutex_
  sync::Publisher publisher_;  // guarded by weights_mutex_, as the next
  UpdateTraffic traffic_;      // of the last update
  std::atomic<int64_t> epoch_;
  router::Router router_;
  std::atomic<int64_t> max_request_tokens_{0};  // of the engine that takes least
  std::atomic<bool> has_shown_memory_{false};

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int, const engine::RemoteEngine*> serving_;  // guarded by mutex_; by index
  int num_started_ = 0;                                 // guarded by mutex_; that have served once
  int num_given_up_ = 0;                                // guarded by mutex_
  std::string failure_;  // guarded by mutex_; of a first start, or the run

  /// Held while something is told: who takes `tell_` or `hear_` back knows that nobody is inside it.
  std::mutex tell_mutex_;
  std::vector<std::string> unsaid_;               // guarded by tell_mutex_; before tell_by()
  std::function<void(const std::string&)> tell_;  // guarded by tell_mutex_
  Hear hear_;                                     // guarded by tell_mutex_
  std::vector<std::jthread> lives_;               // last: they use everything above
};

}  // namespace slime::roles
