#pragma once

/// Samples from snapshots of whole networks with one engine, which switches between them.
///
/// Requests are begun in the order in which they come; one for another snapshot waits until those that run
/// have ended. A snapshot is a network of its own, so that a switch moves nothing.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "engine/engine.h"
#include "model/adapter_tensors.h"
#include "model/network.h"

namespace slime::tinker {

/// Weights that do not change any more. Whoever holds one keeps it alive.
struct Snapshot {
  std::unique_ptr<model::Network> network;         // null: the base's weights
  std::shared_ptr<model::AdapterTensors> adapter;  // beside those of the base; null: none
  int64_t updates = 0;                             // of the model's, when it was taken
};
using SharedSnapshot = std::shared_ptr<Snapshot>;

class Sampler {
 public:
  /// `first`: what the engine begins with. `clock` outlives the object.
  Sampler(SharedSnapshot first, const engine::EngineConfig& config, const Clock& clock);
  /// Requests that have not ended end.
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// `on_update` is called as engine::EngineClient::submit calls it. Any thread.
  void sample(SharedSnapshot snapshot, engine::GenerateRequest request,
              engine::EngineClient::OnUpdate on_update);

  /// Nothing is computed while `body` runs: it has the processor, or the device.
  void stand_still(const std::function<void()>& body);

  int64_t max_request_tokens() const { return engine_->max_request_tokens(); }

 private:
  struct Waiting {
    SharedSnapshot snapshot;
    engine::GenerateRequest request;
    engine::EngineClient::OnUpdate on_update;
  };
  void begin_requests(const std::stop_token& stop);
  void submit(Waiting waiting);
  void switch_to(const SharedSnapshot& snapshot);

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;
  int64_t num_running_ = 0;

  std::mutex engine_in_use_;  // of switches, and of who wants it to stand still
  SharedSnapshot current_;    // of the thread
  int64_t num_switches_ = 0;  // of the thread
  std::unique_ptr<engine::Engine> engine_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace slime::tinker
