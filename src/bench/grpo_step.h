#pragma once

/// One whole step of the loop on made-up prompts and rewards (generation, training, new weights),
/// beside bench/cpu/grpo_step_peer.py.

#include <cstdint>

#include "bench/machine.h"

namespace slime::bench {

struct GrpoOptions {
  ModelOptions model;
  int64_t prompts = 8;
  int64_t samples = 8;
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 96;
  int repeats = 2;  // the best counts
};

/// Prints one JSON line: seconds of the step and of its phases.
void measure_grpo_step(const GrpoOptions& options);

}  // namespace slime::bench
