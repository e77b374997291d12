#pragma once

/// The gated delta rule of one layer in the engine on the GPU: states advanced by a token of each
/// sequence, or by a prompt, against the speed of memory (a state is read and written once).

#include <cstdint>
#include <vector>

#include "kernels/gated_delta.h"

namespace slime::bench {

struct DecodeDeltaOptions {
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  int64_t tokens = 1;                           // of each sequence
  kernels::DeltaShape shape{16, 32, 128, 128};  // Qwen3-Next's
  int64_t taps = 4;
};

/// Prints one JSON line per batch size.
void measure_decode_delta(const DecodeDeltaOptions& options);

}  // namespace slime::bench
