#pragma once

/// Samples from the base and from adapters beside it with one engine, whose batches hold rows of several.
///
/// A snapshot's pairs are put into the engine when it is sampled first, and go when others need the room and
/// nobody samples it; requests are begun in the order in which they come.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "config/run_config.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "engine/served_adapters.h"
#include "tinker/sampler.h"

namespace slime::tinker {

class AdapterSampler {
 public:
  /// `base`: owned, over the weights of the base; `clock` outlives the object. Throws ConfigError.
  AdapterSampler(std::unique_ptr<model::Network> base, engine::EngineConfig config,
                 const Clock& clock);
  /// Requests that have not ended end.
  ~AdapterSampler();
  AdapterSampler(const AdapterSampler&) = delete;
  AdapterSampler& operator=(const AdapterSampler&) = delete;

  /// `snapshot` has no network. `on_update` is called as engine::EngineClient::submit calls it. Any thread.
  void sample(SharedSnapshot snapshot, engine::GenerateRequest request,
              engine::EngineClient::OnUpdate on_update);

  /// Nothing is computed while `body` runs.
  void stand_still(const std::function<void()>& body);

  int64_t max_request_tokens() const { return engine_->max_request_tokens(); }

 private:
  struct Waiting {
    SharedSnapshot snapshot;
    engine::GenerateRequest request;
    engine::EngineClient::OnUpdate on_update;
  };
  struct Loaded {
    std::string name;
    std::weak_ptr<Snapshot> snapshot;
    int64_t num_running = 0;
    uint64_t last_use = 0;
  };
  using Known = std::map<const Snapshot*, Loaded>;
  void begin_requests(const std::stop_token& stop);
  /// The one that has to go for another; end: none can.
  Known::iterator idle();
  bool may_begin();
  void submit(Waiting waiting, const std::string& adapter);
  void ended(const Snapshot* snapshot);

  std::unique_ptr<model::Network> base_;
  engine::ServedAdapters adapters_;
  std::unique_ptr<engine::Engine> engine_;
  std::mutex stands_still_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;
  Known loaded_;
  uint64_t num_loads_ = 0, num_uses_ = 0;

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace slime::tinker
