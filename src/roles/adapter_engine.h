#pragma once

/// One engine for several adapters of one base, and what each of their runs sees of it: an engine of its own,
/// with its own versions.
///
/// A batch mixes rows of all runs, and each has the bits that it has alone (engine/served_adapters.h). While one
/// run trains the others generate: its adapter in the engine is a copy, which changes when it publishes.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "core/clock.h"
#include "engine/engine.h"
#include "engine/forwarding_client.h"
#include "engine/served_adapters.h"
#include "model/network.h"
#include "roles/engines.h"

namespace slime::roles {

class SharedEngine {
 public:
  /// `network`: over the base, for this engine alone. `num_runs`: each has up to two adapters, the newest and
  /// the one before. `clock` outlives the object.
  SharedEngine(std::unique_ptr<model::Network> network, engine::EngineConfig config,
               int64_t num_runs, const Clock& clock);

  engine::Engine& engine() { return *engine_; }
  /// A copy of the numbers that `trained` has now, under this name from the next step on. Any thread.
  std::shared_ptr<model::AdapterTensors> publish(const std::string& name, model::Network& trained);
  /// No new request finds it; those that run keep it.
  void unload(const std::string& name);

 private:
  std::unique_ptr<model::Network> network_;
  engine::ServedAdapters adapters_;
  std::unique_ptr<engine::Engine> engine_;
};

/// Requests of one run: they take its adapter, and their rids and versions are the run's own. What would stop
/// the engine for all is refused, or of no use to the run and done with.
class AdapterClient final : public engine::ForwardingClient {
 public:
  /// `name` is that of a run, and of no other client.
  AdapterClient(engine::EngineClient& engine, std::string name);

  /// What the engine calls the run's adapter of this version.
  std::string adapter_of(WeightVersion version) const;
  /// From now on requests take this version, whose adapter the engine has. Those submitted before keep theirs.
  void set_version(WeightVersion version, std::shared_ptr<model::AdapterTensors> tensors);

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }
  /// In place nothing happens: it is to make one batch of a first wave, and rows have the bits that they
  /// have alone.
  Expected<void> pause(engine::PauseMode mode) override;
  Expected<void> resume() override { return {}; }
  /// Keys and values of an adapter are those of its version: no old ones are found.
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override;
  Expected<void> wake() override;
  Expected<void> update_weights(const engine::WeightUpdate& update) override;
  /// Of the adapter that was published last. On the loop's thread.
  Expected<WeightChecksums> check_weights(engine::WeightCheck check) override;
  WeightVersion weight_version() const override { return version_; }

 private:
  const std::string name_;
  std::atomic<WeightVersion> version_{0};
  std::atomic<uint64_t> num_unnamed_{0};
  std::shared_ptr<model::AdapterTensors> published_;  // of the loop's thread
};

class AdapterEngine final : public Engines {
 public:
  /// `engine` and `trained`, the run's network, outlive the object. Throws ConfigError for an adapter with whole
  /// modules.
  AdapterEngine(SharedEngine& engine, const std::string& name, model::Network& trained,
                WeightVersion version);
  /// Ends the run's requests, and no other's.
  ~AdapterEngine() override;

  engine::EngineClient& client() override { return client_; }
  int64_t max_request_tokens() const override { return shared_.engine().max_request_tokens(); }
  /// The adapter there is a copy: what is under way goes on with it.
  void yield_to_training() override {}
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;

 private:
  SharedEngine& shared_;
  model::Network& trained_;
  AdapterClient client_;
  /// Names of the adapters that are loaded, the newest last. A request names one when it is submitted and finds
  /// it when the engine reads it, so that the one before the newest stays.
  std::deque<std::string> loaded_;
};

}  // namespace slime::roles
