#pragma once

/// External engines: servers of SGLang's protocol that somebody else started
/// (--rollout-external-engine-addrs). They are found, given the run's weights through a folder, and
/// watched; never started or ended (docs/decisions/0134-external-engines.md).
///
/// Each has a thread here. A server that is lost leaves the router, what it was drawing goes on in the
/// others, and it joins again, with the run's weights, when it answers. The run ends when none has
/// answered for a while.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "engine/remote/http_engine.h"
#include "model/network.h"
#include "roles/engines.h"
#include "router/router.h"
#include "sync/publisher.h"

namespace slime::roles {

struct ExternalEnginesConfig {
  std::vector<engine::HttpEngineConfig> servers;
  sync::PublisherConfig publishes;                  // through a folder
  std::chrono::milliseconds check_interval{2'000};  // of a server that is lost
  std::chrono::milliseconds patience{60'000};       // without any server, until the run ends
};

/// "10.0.0.2:30000" and "http://10.0.0.2:30000". Throws ConfigError for another.
engine::HttpEngineConfig external_server(const std::string& address);

/// One class because who may serve, and with which weights, follows from servers, updates and router
/// together.
class ExternalEngines final : public Engines {
 public:
  /// Waits until all serve the weights of `published`, as `version`. It and `clock` outlive the object.
  /// `trained`: the network whose weights they are, where it is whole in this process; or null. Throws
  /// ConfigError with everything that is wrong with any of them.
  ExternalEngines(ExternalEnginesConfig config, model::Network& published, model::Network* trained,
                  WeightVersion version, const Clock& clock);
  ~ExternalEngines() override;
  ExternalEngines(const ExternalEngines&) = delete;
  ExternalEngines& operator=(const ExternalEngines&) = delete;

  engine::EngineClient& client() override { return router_; }
  void yield_to_training() override {}
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;
  int64_t max_request_tokens() const override { return max_request_tokens_; }
  double last_transfer_seconds() override;
  std::optional<UpdateTraffic> last_traffic() override;
  model::Network* own_weights() override { return &published_; }
  void tell_by(std::function<void(const std::string&)> tell) override;
  void call_behind_writing(std::function<void(const std::filesystem::path&)> call) override;
  bool outlive_trainers() const override { return true; }
  void begin_epoch(int64_t epoch, WeightVersion version, model::Network* trained,
                   const FetchWeights& fetch) override;

 private:
  /// Asks each what it is. Throws ConfigError.
  void look_at_servers();
  /// Gives the weights to all, which join.
  void begin();
  void live(std::size_t index, const std::stop_token& stop);
  /// One stay in the router, until the server is lost or `stop`; why it was lost.
  std::string stay(std::size_t index, std::unique_ptr<engine::HttpEngine> server,
                   router::EngineId id, const std::stop_token& stop);
  /// When it answers again: with the run's weights in the router. Null: `stop`.
  std::unique_ptr<engine::HttpEngine> wait_for(std::size_t index, router::EngineId& id,
                                               const std::stop_token& stop);
  void publish(const FetchWeights& fetch);  // with weights_mutex_ held
  void say(const std::string& line);
  bool pause(std::chrono::milliseconds time, const std::stop_token& stop);

  const ExternalEnginesConfig config_;
  const Clock& clock_;
  model::Network& published_;
  model::Network* trained_;          // guarded by weights_mutex_, as the next
  std::shared_mutex weights_mutex_;  // shared: who brings one server what the others have
  WeightVersion version_;
  std::function<void(const std::filesystem::path&)> behind_writing_;
  sync::Publisher publisher_;
  UpdateTraffic traffic_;
  double transfer_seconds_ = 0;
  int64_t max_request_tokens_ = 0;  // the least of all
  router::Router router_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t num_serving_ = 0;   // guarded by mutex_, as the next
  Clock::TimePoint last_served_;  // when the last of them was lost
  std::mutex tell_mutex_;
  std::vector<std::string> unsaid_;               // guarded by tell_mutex_; before tell_by()
  std::function<void(const std::string&)> tell_;  // guarded by tell_mutex_
  std::vector<std::unique_ptr<engine::HttpEngine>> first_;  // between constructor and threads
  std::vector<router::EngineId> first_ids_;
  std::vector<std::jthread> lives_;  // last: they use everything above
};

}  // namespace slime::roles
