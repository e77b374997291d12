#pragma once

/// Pause of generation for new weights: sequences decode, and an engine with weights of its own
/// gets others every so many steps, from a network of the same device or, where the engine is in a
/// process of its own, of another one.

#include <functional>
#include <string>
#include <vector>

#include "bench/made_up_model.h"
#include "core/json.h"
#include "engine/engine.h"

namespace slime::bench {

struct UpdatePauseOptions {
  std::string name;
  ShapeOptions shape;
  std::string device = "cuda";
  std::vector<std::string> modes{"keep", "recompute", "interrupt"};
  int64_t sequences = 256;  // that decode together
  int64_t prompt_tokens = 256;
  int64_t steps_per_update = 50;
  int64_t updates = 20;  // of each mode
  /// Engines in processes of their own, as `slime train --rollout-num-gpus` starts them; 0: one in this
  /// process.
  int64_t engines_apart = 0;
  int64_t lora_rank = 0;  // above 0: an adapter is new, beside weights that stay
};

/// Who decodes, and how it is brought new weights.
struct UpdatedEngine {
  engine::EngineClient& client;
  int64_t max_request_tokens = 0;
  int64_t vocab_size = 0;
  int64_t weight_bytes = 0;
  std::function<void(WeightVersion)> update;  // returns when it has them
  std::function<double()> copy_seconds;       // of the last update: no step ran
  /// Until the weights had come from another device; null: there is none.
  std::function<double()> transfer_seconds;
};

/// An engine of this process, which copies the weights of `fresh`. References outlive the result.
UpdatedEngine engine_here(engine::Engine& engine, model::Network& fresh, const std::string& mode);

/// Of one mode, which is one of those above: `engine` updates so.
///
/// A pause is the time from the last token of the old weights to the first of the new ones, less
/// the median of that time between two steps of the same weights. `copy_ms` is the engine's own
/// measure: how long the weights were copied while no step ran. `in_use_ms` is the time from the call
/// with new weights to the first token that they gave. Throws ConfigError when the engine ends a
/// sequence that nobody ended.
json::object measure_update_pause(const UpdatedEngine& engine, const UpdatePauseOptions& options,
                                  const std::string& mode);

}  // namespace slime::bench
