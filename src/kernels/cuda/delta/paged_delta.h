#pragma once

/// The gated delta rule of the engine (kernels/gated_delta.h): the tokens of a step, one or many of
/// each sequence, advance the sequences' states, one token after another.
///
/// Dimensions: T rows, S sequences, J taps, K key heads, N value heads, D key size, V value size,
/// E = 2 K D + N V. The state of a sequence in a layer, float32:
///   tokens  [J - 1, E]   the last ones before the convolution, oldest first
///   heads   [N, D, V]
///
/// Pointers are device memory. Asynchronous on `stream`; throws std::runtime_error for a shape that
/// has no kernel or a launch that fails.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

struct DeltaRows {
  Number number = Number::kBFloat16;  // of the rows
  const void* mixed_TE = nullptr;     // before the convolution
  int64_t row_stride = 0;             // of mixed_TE, in elements
  const float* decay_TN = nullptr;    // logarithms
  const float* rate_TN = nullptr;
  Number of_taps = Number::kBFloat16;
  const void* tap_EJ = nullptr;
  const int32_t* row_sequence_T = nullptr;
  const int32_t* query_starts = nullptr;  // [S + 1]
  const int32_t* state_S =
      nullptr;  // place of each sequence's state; below 0: none, and zeros come out
  float* states = nullptr;
  int64_t state_stride = 0;  // from place to place, in floats
  float* unit_TE = nullptr;  // scratch: queries, keys and values as the rule reads them
  float* out_TC = nullptr;   // [T, N V]
  int64_t rows = 0;
  float unit_eps = 0;  // of the squared length of queries and keys
  int sequences = 0, taps = 0, key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
};

/// Within the limits of kernels/gpu/delta_limits.h.
void paged_delta(const DeltaRows& call, Stream stream);

}  // namespace slime::kernels::cuda
