#pragma once

/// What it costs that trainer and engine are colocated on one GPU and alternate.

#include "bench/made_up_model.h"

namespace slime::bench {

struct ColocationOptions {
  ShapeOptions shape;
  double kv_cache_gb = 80;  // 10^9 bytes
  int repeats = 5;          // the median counts
};

/// New weights to the engine, which reads the trainer's: milliseconds from the trainer's last
/// update until the engine may serve. Prints a JSON line.
void measure_hand_over(const ColocationOptions& options);

/// The cache of keys and values gives its memory back and takes it again: seconds of both together.
/// Prints a JSON line; throws ConfigError when the engine draws other tokens afterwards.
void measure_sleep_wake(const ColocationOptions& options);

}  // namespace slime::bench
