#pragma once

/// The engines of a run, as a loop sees them: one address for requests, and the two moments at
/// which trainer and engines meet. Here are those of this process; those of workers:
/// roles/engine_workers.h (docs/decisions/0074-stations.md, 0083-many-devices.md).

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/error.h"
#include "engine/engine.h"
#include "model/network.h"
#include "report/run_memory.h"

namespace slime::roles {

/// Of one update of the engines' weights.
struct UpdateTraffic {
  int64_t bytes = 0;   // to all engines together, and of files
  double density = 1;  // of the weights, that had changed, where somebody counts them
};

class Engines {
 public:
  virtual ~Engines() = default;

  /// Where rollout and evaluation send their requests.
  virtual engine::EngineClient& client() = 0;

  /// Before training: from the return of this call until update_weights() nothing is generated and
  /// nobody reads the weights. Requests that ran keep their tokens and wait. Where trainer and
  /// engine do not fit side by side, the cache's memory goes back.
  virtual void yield_to_training() = 0;

  /// Brings new weights into a network of the engines' own.
  using FetchWeights = std::function<void(model::Network& own)>;
  /// After training: the weights are new, and requests go on with them. `fetch` is called where
  /// engines do not read the trainer's own network; when it throws they keep what they have. Throws
  /// ConfigError when the memory of the cache does not come back.
  virtual void update_weights(WeightVersion version, const FetchWeights& fetch) = 0;

  /// After training, in the place of update_weights(): what yield_to_training() held goes on with the
  /// weights that the engines have, where these are their own.
  virtual void go_on() {}

  /// The longest that a request may be, prompt and response together.
  virtual int64_t max_request_tokens() const = 0;

  /// Of the weights that the engines have; nothing in runs that generate nothing.
  virtual std::optional<WeightVersion> weight_version() { return client().weight_version(); }

  /// How long the last update kept weights of their own from being computed with, and how long it took
  /// until they had come to other processes; not during one.
  virtual double last_copy_seconds() { return 0; }
  virtual double last_transfer_seconds() { return 0; }

  /// What the last update of engines elsewhere took; nothing where no weights travel.
  virtual std::optional<UpdateTraffic> last_traffic() { return std::nullopt; }

  /// The weights of weight_version(), complete, where they are not the trainer's; null elsewhere.
  /// They stay as they are until the next update_weights().
  virtual model::Network* own_weights() { return nullptr; }

  // Engines in workers, which may be lost, come back and outlive the trainers; others say nothing.

  /// They say so by `tell`, from any thread; empty: no more.
  virtual void tell_by(std::function<void(const std::string&)> /*tell*/) {}
  /// What an engine does from now on, from any thread; empty: nobody hears it.
  using Hear = std::function<void(int index, engine::Activity)>;
  virtual void hear_by(Hear /*hear*/) {}
  /// Called when a version's folder is complete (sync::PublisherConfig); empty: nothing is. Not during
  /// an update.
  virtual void call_behind_writing(std::function<void(const std::filesystem::path&)> /*call*/) {}
  virtual bool outlive_trainers() const { return false; }
  /// The trainers begin again, and these are the weights that they begin with. `trained`: the network
  /// whose weights they are, where it is whole in this process; or null. Nothing is under way in the
  /// engines. Updates and connections are of this epoch from here on.
  virtual void begin_epoch(int64_t /*epoch*/, WeightVersion /*version*/,
                           model::Network* /*trained*/, const FetchWeights& /*fetch*/) {
    throw BugError("engines that end with their trainers begin no epoch");
  }
};

/// For runs that generate nothing (rows, dumps).
class NoEngines final : public Engines {
 public:
  engine::EngineClient& client() override;  // BugError
  int64_t max_request_tokens() const override { return 0; }
  void yield_to_training() override {}
  void update_weights(WeightVersion, const FetchWeights&) override {}
  std::optional<WeightVersion> weight_version() override { return std::nullopt; }
};

/// One engine in this process, over the weights that the trainer updates in place: new weights are
/// a new version, and nothing moves.
class EngineHere final : public Engines {
 public:
  /// `network`, `clock` and `memory` outlive the object. `offloads`: the cache gives its memory
  /// back while training. `running`: what requests do that have not ended when training begins.
  /// Throws ConfigError when the cache does not fit.
  EngineHere(model::Network& network, const engine::EngineConfig& config, WeightVersion version,
             engine::RunningRequests running, bool offloads, const report::RunMemory& memory,
             const Clock& clock);

  engine::EngineClient& client() override { return *engine_; }
  int64_t max_request_tokens() const override { return engine_->max_request_tokens(); }
  void yield_to_training() override;
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;
  void go_on() override { throw BugError("the trainer has changed the weights of this engine"); }

 private:
  const report::RunMemory& memory_;
  const engine::RunningRequests running_;
  const bool offloads_;
  std::unique_ptr<engine::Engine> engine_;
};

/// Whether an engine stands still while the trainer works, and whether its cache then gives its memory
/// back.
struct Turns {
  bool takes = false;
  bool offloads = false;
};

/// One engine in this process with weights of its own: it generates while the trainer trains, and
/// stands still only while the new weights are copied. Or they take turns: its weights are stored in
/// another form than the trainer's.
class EngineBeside final : public Engines {
 public:
  /// `trained` is the trainer's network, `own` one of its shape whose weights are overwritten.
  /// `num_threads`: of the CPU's cores, for the engine. References outlive the object. Throws
  /// ConfigError when the cache does not fit.
  EngineBeside(model::Network& trained, std::unique_ptr<model::Network> own,
               const engine::EngineConfig& config, WeightVersion version,
               engine::RunningRequests running, const Turns& turns, const report::RunMemory& memory,
               const Clock& clock);

  engine::EngineClient& client() override { return *engine_; }
  int64_t max_request_tokens() const override { return engine_->max_request_tokens(); }
  void yield_to_training() override;
  void update_weights(WeightVersion version, const FetchWeights& fetch) override;
  void go_on() override;
  model::Network* own_weights() override;
  double last_copy_seconds() override { return engine_->last_copy_seconds(); }

 private:
  void copy_weights(WeightVersion version);

  const report::RunMemory& memory_;
  model::Network& trained_;
  const std::unique_ptr<model::Network> own_;
  const Turns turns_;
  const engine::RunningRequests running_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace slime::roles
