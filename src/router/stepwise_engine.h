#pragma once

/// For tests: an engine that draws when it is told to, and may die.

#include "core/splitmix64.h"
#include "engine/scripted_engine.h"

namespace slime::router {

/// What any engine draws at a position of a sequence: a function of the seed and the position.
inline TokenId token_at(uint64_t seed, std::size_t position) {
  return static_cast<TokenId>(splitmix64(seed + position) % 1000) + 3;
}
inline constexpr TokenId kEnd = 2;

/// Whole responses have `length_of(seed)` tokens, the last of them kEnd. Tells as often as requests
/// want.
class StepwiseEngine final : public engine::ScriptedEngine {
 public:
  StepwiseEngine() : ScriptedEngine(draw) {
    tells_each_token = false;
    told_rid = "the engine's";
    on_update_weights = [this](const engine::WeightUpdate&) -> Expected<void> {
      if (refuses_updates) return failure("the update does not fit");
      return {};
    };
  }

  static std::size_t length_of(uint64_t seed) { return 1 + splitmix64(~seed) % 40; }

  bool refuses_updates = false;

 private:
  static void draw(engine::ScriptedRequest& running, WeightVersion version) {
    const engine::GenerateRequest& request = running.request;
    const uint64_t seed = *request.sampling.sampling_seed;
    const auto sampled = static_cast<std::size_t>(request.num_sampled + running.num_sampled);
    const bool ends = sampled + 1 >= length_of(seed);
    const std::size_t position =
        request.input_ids.size() + static_cast<std::size_t>(running.num_sampled);
    const TokenId token = ends ? kEnd : token_at(seed, position);
    running.draw(token, -static_cast<float>(token), version);
    using Kind = engine::FinishReason::Kind;
    if (ends || running.num_sampled == request.sampling.max_new_tokens)
      running.finish(ends ? Kind::kStop : Kind::kLength);
  }
};

}  // namespace slime::router
