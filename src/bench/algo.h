#pragma once

/// The policy loss and its gradient on a million tokens, against the speed of memory.

#include <cstdint>

namespace slime::bench {

struct AlgoOptions {
  int64_t tokens = 1 << 20;
  int64_t response_length = 1024;
  int64_t micro_batch_tokens = 1 << 14;  // of one call of the loss
  int repeats = 5;
};

/// Prints one JSON line per objective.
void measure_algo(const AlgoOptions& options);

}  // namespace slime::bench
