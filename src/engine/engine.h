#pragma once

/// The rollout engine in this process: continuous batching over one Network.
///
/// One thread owns everything: it takes commands from a bounded queue (this file), takes requests
/// in (engine/admission.h), those with a grammar once that is compiled (engine/constraint_queue.h), plans, computes and publishes steps (engine/step_pipeline.h), and sleeps
/// when there is nothing to do. New weights: engine/running_weights.h. What others may look at
/// meanwhile: engine/engine_progress.h.
///
/// The network may be shared with a trainer of the same process: pause(), train, update_weights()
/// in place, resume(). Between pause() and resume() the engine's thread does not touch the weights.
/// Keys and values of old weights never serve new requests: an update empties the prefix tree. What
/// running ones do with theirs the update says (client.h); their version runs say which weights
/// made which token.

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/bounded_queue.h"
#include "core/clock.h"
#include "core/expected.h"
#include "engine/client.h"
#include "engine/constraint_queue.h"
#include "engine/engine_config.h"
#include "engine/engine_progress.h"
#include "engine/running_weights.h"
#include "engine/step_pipeline.h"
#include "model/network.h"

namespace slime::engine {

class Engine final : public EngineClient {
 public:
  /// Throws ConfigError for settings that cannot work with this network. `network` and `clock` must
  /// outlive the engine.
  Engine(model::Network& network, const EngineConfig& config, const Clock& clock,
         const MakeStepRunner& make_runner = make_step_runner);
  /// Unfinished requests end with kShuttingDown.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The calls below may come from any thread. Control calls wait until the engine's thread has
  // carried them out; made from a callback, they are carried out after the current step instead
  // (flush_cache() then answers false).

  /// With max_queued_requests in line already the answer is kQueueFull, on the calling thread when
  /// the engine has not even read as many as may run and wait.
  RequestHandle submit(GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override;

  /// When it returns, no step is running and none will until resume(). New requests wait. kAbort
  /// ends all requests; kRetract sends them back in line and frees their pages; kInPlace keeps
  /// everything as it is.
  Expected<void> pause(PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override;

  Expected<void> sleep() override;
  Expected<void> wake() override;

  /// A checkpoint is read and compared with the running model on the calling thread, and written
  /// into the second buffer where there is one; the engine stands still only while the weights are
  /// copied. When it returns, the source may change. Weights that change in place are changed
  /// between pause() and this call. Updates come one at a time.
  Expected<void> update_weights(const WeightUpdate& update) override;

  /// kReset is for an engine whose weights are nobody else's.
  Expected<WeightChecksums> check_weights(WeightCheck check) override;
  Expected<WeightRows> read_weight(const std::string& name, int64_t most_rows) override;

  /// How long the last copy of new weights took on the device, during which no step ran. Waits for
  /// it; 0 where nothing was copied. Not during an update.
  double last_copy_seconds() { return steps_.wait_for_weights(); }

  /// Calls `body` on the engine's thread between two steps; false when the engine is shutting down.
  /// Exceptions come back to the caller.
  bool run_exclusive(std::function<void()> body);
  /// Calls `body` on this thread while no step is being launched; those in flight run on, with the adapters that they
  /// were launched with. False when the engine is shutting down.
  bool run_beside_steps(const std::function<void()>& body);

  WeightVersion weight_version() const override { return weights_.version(); }
  Expected<EngineLoad> load() const override;

  const EngineConfig& config() const { return config_; }
  /// Prompt and response together cannot be longer: the context, or the whole cache if that is
  /// smaller.
  int64_t max_request_tokens() const { return steps_.max_request_tokens(); }
  at::ScalarType kv_dtype() const { return steps_.kv_dtype(); }

 private:
  struct All {};
  /// Whom to end: a call, a prefix of rids, all.
  using Abort = std::variant<RequestHandle, std::string, All>;
  struct Call {
    std::function<void()> body;
    std::shared_ptr<std::promise<void>> done;
    bool drains_first = true;  // false: the body does where it has to
  };
  /// A request whose constraint is made.
  struct Ready {
    RequestHandle request{};
  };
  using Command = std::variant<Submission, Abort, Call, Ready>;

  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void run();
  void handle(Command command);
  void run_made_by_callbacks();
  Expected<void> send(Abort abort);
  bool run_on_thread(std::function<void()> body, bool drains_first);
  /// run_exclusive for calls whose failure is a value.
  Expected<void> control(std::function<void()> body, bool drains_first = true);

  const Clock& clock_;
  const EngineConfig config_;
  RunningWeights weights_;
  EngineProgress progress_;
  StepPipeline steps_;
  /// Control calls, carried out after the step.
  std::vector<std::function<void()>> made_by_callbacks_;
  std::atomic<uint64_t> num_handles_{0};
  std::atomic<bool> stopping_{false};
  BoundedQueue<Command> commands_;
  std::shared_ptr<ConstraintQueue> awaiting_constraints_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace slime::engine
