#pragma once

/// One training step on made-up tokens (packed forward, loss, backward, clipping, AdamW), beside
/// bench/cpu/train_step_transformers.py.

#include <cstdint>

#include "bench/machine.h"

namespace slime::bench {

struct TrainStepOptions {
  ModelOptions model;
  int64_t tokens = 4096;  // of a step
  int64_t sequence_length = 512;
  int64_t prompts = 0;  // samples share so many; 0: none
  int repeats = 3;      // the best counts
  bool recompute = false;
};

/// Prints one JSON line: tokens per second, GFLOP/s and the seconds of each phase.
void measure_train_step(const TrainStepOptions& options);

}  // namespace slime::bench
