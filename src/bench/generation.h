#pragma once

/// How fast the engine is on this machine: many requests at once with random prompts of one length,
/// greedy, none ends early. `slime bench engine` prints the result.

#include <cstdint>

#include "core/clock.h"
#include "core/json.h"
#include "engine/engine.h"

namespace slime::bench {

struct GenerationLoad {
  int64_t num_requests = 32;
  int64_t input_length = 128;
  int64_t output_length = 128;
  int64_t num_groups = 0;  // distinct prompts; 0: every request has its own
  int64_t rounds = 2;      // after one short warm-up; the fastest counts
  uint64_t seed = 0;
};

/// {"output_tokens_per_second", "seconds", "prefill_seconds", "decode_step_ms", "decode_gflops",
/// "decode_gb_per_second", ...}
///
/// A decode step reads every weight once (the embedding only as the output layer) and the keys and
/// values of all running requests; it computes two operations per weight and request. Rates are
/// those counts over the median time between two steps in which all requests decode. The prefix
/// cache is emptied before each round.
json::object run_generation(engine::Engine& engine, model::Network& network, const Clock& clock,
                            const GenerationLoad& config);

}  // namespace slime::bench
