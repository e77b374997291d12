#pragma once

/// An engine that draws only when it is told to, the same number of tokens for every request.
///
/// Requests wait here, in the order of submission. In a round each of them is given to the engine
/// below for its next tokens, all as one batch; when all have come, their callers hear of it, in
/// that order. So what is sampled together, and who hears first, does not depend on anybody's speed
/// (docs/how/asynchronous_training.md, "Repeatable"). Between two rounds nothing is in
/// the engine: its prefix tree has what was computed, as long as the weights stay.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "engine/forwarding_client.h"

namespace slime::rollout {

/// Who waits for a round looks that often whether somebody wants it to end.
constexpr std::chrono::milliseconds kLookInterval{100};

/// Used by one thread at a time.
class RoundEngine final : public engine::ForwardingClient {
 public:
  /// `engine` outlives the object, and draws for nobody else.
  RoundEngine(engine::EngineClient& engine, int64_t tokens_per_round)
      : ForwardingClient(engine), tokens_per_round_(tokens_per_round) {}

  /// Somebody waits for tokens.
  bool has_open() const { return !open_.empty(); }
  /// All that are open draw `tokens_per_round` tokens, or end. `look` is called every kLookInterval
  /// meanwhile, and may abort. Throws std::runtime_error when the engine takes no orders.
  void run_round(const std::function<void()>& look);

  /// `on_update` is called on the thread of run_round() or abort().
  engine::RequestHandle submit(engine::GenerateRequest request, OnUpdate on_update) override;
  Expected<void> abort(engine::RequestHandle request) override;
  Expected<void> abort_prefix(const std::string& prefix) override;
  Expected<void> abort_all() override { return abort_prefix(""); }

 private:
  struct Open {
    engine::GenerateRequest rest;  // what is left of it: its input has the tokens that were sampled
    OnUpdate on_update;
    int64_t prompt_tokens = 0;
    std::optional<engine::RequestHandle> in_engine;  // during a round, of the engine below
    bool is_aborted = false;                         // during a round
  };

  engine::GenerateRequest next_part(const Open& open) const;
  void tell(engine::RequestHandle handle, engine::GenerateUpdate update);

  const int64_t tokens_per_round_;
  uint64_t num_submitted_ = 0;
  std::map<engine::RequestHandle, Open> open_;  // in the order of submission
};

}  // namespace slime::rollout
