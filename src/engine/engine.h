#pragma once

/// The rollout engine in this process: continuous batching over one Network.
///
/// One thread owns everything: it takes commands from a bounded queue, plans a step
/// (engine/scheduler.h), computes it (engine/model_runner.h), publishes tokens through the
/// requests' callbacks, and sleeps when there is nothing to do.
///
/// The network may be shared with a trainer of the same process: pause(), train, update_weights()
/// in place, resume(). Between pause() and resume() the engine's thread does not touch the weights.
/// Keys and values of old weights never serve new ones: an update empties the prefix tree and sends
/// running requests back in line; they keep their tokens, and their version runs say which weights
/// made which token.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "core/bounded_queue.h"
#include "core/clock.h"
#include "core/expected.h"
#include "engine/client.h"
#include "engine/prefix_tree.h"
#include "engine/scheduler.h"
#include "engine/step_runner.h"
#include "engine/stop_checker.h"
#include "model/network.h"

namespace slime::engine {

struct EngineConfig {
  int64_t max_running_requests = 128;   // decode together; more wait
  int64_t max_queued_requests = 65536;  // beyond this, submit() answers 503
  int64_t max_prefill_tokens =
      512;  // prompt tokens per step: longer prompts are computed in chunks
  int64_t kv_cache_bytes = int64_t{2} << 30;
  /// "auto" (that of the weights, float32 for float16 ones on the CPU), "float32", "bfloat16", or
  /// "fp8_e4m3": GPU only, half the memory, no scales.
  std::string kv_cache_dtype = "auto";
  int64_t context_length = 0;  // 0: the model's max_position_embeddings
  bool enable_prefix_cache = true;
  bool shares_prompt_reads = true;     // GPU: requests with the same prefix read it once per step
  std::vector<TokenId> eos_token_ids;  // empty: the model's
  uint64_t seed = 0;                   // of requests without sampling_seed
  TokenBytesFn token_bytes;            // needed by stop strings only
};

/// make_step_runner, unless a test has a device of its own.
using MakeStepRunner =
    std::function<std::unique_ptr<StepRunner>(model::Network&, const StepRunnerConfig&)>;

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

  /// With max_queued_requests waiting already the answer is kQueueFull, on the calling thread when
  /// the engine has not even read those.
  void submit(GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(const std::string& rid) override;
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

  /// A checkpoint is read and compared with the running model on the calling thread; the engine
  /// stands still only while the weights are copied. Weights that change in place are changed
  /// between pause() and this call.
  Expected<void> update_weights(const WeightUpdate& update) override;

  /// Calls `body` on the engine's thread between two steps; false when the engine is shutting down.
  /// Exceptions come back to the caller.
  bool run_exclusive(std::function<void()> body);

  WeightVersion weight_version() const override { return version_.load(); }
  Expected<EngineLoad> load() const override;

  const EngineConfig& config() const { return config_; }
  /// Prompt and response together cannot be longer: the context, or the whole cache if that is
  /// smaller.
  int64_t max_request_tokens() const { return max_request_tokens_; }
  at::ScalarType kv_dtype() const { return runner_->kv_dtype(); }

 private:
  struct Submit {
    GenerateRequest request;
    OnUpdate on_update;
    Clock::TimePoint submitted;
  };
  struct Abort {
    enum class Who { kOne, kPrefix, kAll };
    Who who = Who::kAll;
    std::string rid;
    bool matches(const std::string& other) const {
      return who == Who::kAll || (who == Who::kOne ? other == rid : other.starts_with(rid));
    }
  };
  struct Call {
    std::function<void()> body;
    std::shared_ptr<std::promise<void>> done;
  };
  using Command = std::variant<Submit, Abort, Call>;

  /// A launched step. A request that ended meanwhile is null: its surplus token is dropped.
  struct StepInFlight {
    struct Part {
      Request* request = nullptr;
      bool completes = false;
      int64_t position = 0;  // of the drawn token in Request::tokens
    };
    std::vector<Part> parts;  // per chunk
  };

  bool may_step() const { return !is_paused_ && !is_asleep_; }
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void run();
  Expected<void> abort(Abort abort);
  /// run_exclusive for calls whose failure is a value.
  Expected<void> control(std::function<void()> body);
  Expected<std::shared_ptr<model::Network>> load_same_shapes(
      const std::filesystem::path& directory) const;
  void handle(Command command);
  void admit(Submit submit);
  /// Plans and launches a step, and publishes the one before it (or this one, when the runner does
  /// not run ahead).
  void step();
  void launch(std::vector<Chunk> chunks);
  void collect();
  bool has_work() const;
  /// Until no step is in flight.
  void drain();
  /// The same for what has to go on after a device error, which ends all requests.
  void drain_or_fail();
  void fail_all(const std::exception& error);
  void run_made_by_callbacks();
  void publish(Request& request, int64_t position, std::optional<kernels::SampledToken> token);
  void deliver(Request& request);
  void finish(Request& request, FinishReason reason);
  void finish_all(const FinishReason& reason);
  void refresh_load(int64_t num_decoded);

  model::Network& network_;
  const Clock& clock_;
  EngineConfig config_;
  int64_t max_request_tokens_ = 0;
  PagePool pool_;
  std::unique_ptr<StepRunner> runner_;
  PrefixTree tree_;
  Scheduler scheduler_;
  std::deque<StepInFlight> in_flight_;  // oldest first; two at most
  uint64_t num_submitted_ = 0;
  bool is_paused_ = false;
  bool is_asleep_ = false;
  std::vector<std::function<void()>>
      made_by_callbacks_;  // control calls, carried out after the step
  int64_t steps_done_ = 0;
  int64_t window_tokens_ = 0;  // generated since window_start_
  double tokens_per_second_ = 0;
  Clock::TimePoint window_start_;

  std::atomic<WeightVersion> version_{0};
  std::atomic<bool> stopping_{false};
  mutable std::mutex load_mutex_;
  EngineLoad load_;             // guarded by load_mutex_
  Clock::TimePoint last_step_;  // guarded by load_mutex_
  std::optional<Clock::TimePoint>
      waits_since_;  // guarded by load_mutex_; for the next step to end, while there is work
  BoundedQueue<Command> commands_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace slime::engine
