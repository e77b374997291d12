#pragma once

/// Engines that compute nothing and take as long as a cost model says.
///
/// Tokens tell on whoever loses, repeats or mislabels them: the token at position p of the response
/// with key k is token_at(k, p), and its log-prob is that of its version, log_prob_of(version).
///
/// What runs on a device draws a token per decoding step, several steps at a time (a chunk) as long
/// as nothing happens in between; whatever happens (a request, an abort, new weights) ends the chunk
/// at the last whole step.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/client.h"
#include "estimate/cost_model.h"
#include "simulate/chance.h"
#include "simulate/event_queue.h"

namespace slime::simulate {

inline TokenId token_at(uint64_t key, int64_t position) {
  return static_cast<TokenId>(splitmix64(key + static_cast<uint64_t>(position) * 77) & 0x3fffffff);
}
inline float log_prob_of(WeightVersion version) { return -1.0F - static_cast<float>(version); }

/// Probabilities, and how long.
struct EngineFaults {
  double late = 0;  // a last update comes up to `latest` seconds after it was due
  double latest = 0;
  double duplicate = 0;  // a last update comes twice
  double death = 0;      // per chunk: a device gives up all that it has
  double dead_for = 0;   // seconds in which it refuses requests
  double fatal = 0;      // per chunk: what runs ends because the step failed
};

struct StubEngineConfig {
  estimate::CostModel cost;
  int64_t num_devices = 1;
  int64_t max_running = 256;          // per device
  int64_t kv_tokens = 1'000'000'000;  // per device
  int64_t prompt_tokens = 0;          // of each request, besides its input
  int64_t max_chunk = 32;             // decoding steps
  EngineFaults faults;
};

/// One class because it is one interface, and devices share its requests.
class StubEngine final : public engine::EngineClient {
 public:
  /// Tokens of the whole response with this key.
  using LengthFn = std::function<int64_t(uint64_t key)>;

  /// References outlive the object.
  StubEngine(EventQueue& queue, StubEngineConfig config, LengthFn length_of, uint64_t seed,
             WeightVersion version);

  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(engine::RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }
  Expected<void> pause(engine::PauseMode mode) override;
  Expected<void> resume() override;
  Expected<bool> flush_cache() override { return true; }
  Expected<void> sleep() override { return {}; }
  Expected<void> wake() override { return {}; }
  /// At once; that it takes time is its caller's to simulate.
  Expected<void> update_weights(const engine::WeightUpdate& update) override;
  WeightVersion weight_version() const override { return version_; }
  Expected<engine::EngineLoad> load() const override;

  int64_t num_sampled() const { return num_sampled_; }
  int64_t num_requests() const { return static_cast<int64_t>(requests_.size()); }
  int64_t most_running() const { return most_running_; }
  /// Of all devices together, in which they decoded or read prompts.
  double busy_seconds() const { return busy_seconds_; }
  void end_faults() { config_.faults = {}; }

 private:
  struct Request {
    engine::RequestHandle handle{};
    std::string rid;
    OnUpdate on_update;
    uint64_t key = 0;
    int64_t position = 0;  // tokens of the response, of earlier requests too
    int64_t num_left = 0;
    bool is_cut = false;  // ends with the length that was asked for
    std::size_t device = 0;
    int64_t to_compute() const { return position; }
  };
  struct Device {
    std::deque<Request*> waiting;
    std::vector<Request*> running;
    int64_t num_cached = 0;   // tokens of keys and values
    int64_t chunk = 0;        // number of the present one; its event is void when this has moved on
    int64_t chunk_steps = 0;  // 0: it does nothing
    double step_seconds = 0;
    Clock::TimePoint chunk_begin;
    double prefill_seconds = 0;  // owed, before the next chunk
    Clock::TimePoint dead_until;
  };

  void start(std::size_t device);
  void admit(Device& device);
  void make_room(Device& device);
  void end_chunk(std::size_t device, int64_t chunk);
  void settle(std::size_t device);
  void draw(Device& device, int64_t num_steps);
  void die(std::size_t device);
  void end(Request& request, engine::GenerateUpdate update, engine::FinishReason finish);
  void drop(Request& request);
  int64_t cached(const Request& request) const { return config_.prompt_tokens + request.position; }

  EventQueue& queue_;
  StubEngineConfig config_;
  const LengthFn length_of_;
  Chance chance_;
  WeightVersion version_;
  bool is_paused_ = false;
  std::vector<Device> devices_;
  std::map<engine::RequestHandle, std::unique_ptr<Request>> requests_;
  uint64_t num_submitted_ = 0;
  int64_t num_sampled_ = 0;
  int64_t most_running_ = 0;
  double busy_seconds_ = 0;
};

}  // namespace slime::simulate
