#pragma once

/// The inner loops of a gated delta net's token (delta_step_loops.h), for one instruction set.

#include <cstdint>

namespace slime::kernels {

struct DeltaStepPasses {
  void (*convolve)(const float* tap_JE, const float* x_E, float* tokens_JE, float* y_E,
                   int64_t taps, int64_t channels);
  void (*scale_to_length)(float* x, int64_t size, float length);
  void (*advance)(float* state_DV, const float* q_D, const float* k_D, const float* v_V,
                  float decay, float rate, float* written_V, float* out_V, int64_t key_dim,
                  int64_t value_dim);
};

/// Needs has_avx2().
const DeltaStepPasses& delta_step_passes_avx2();

}  // namespace slime::kernels
