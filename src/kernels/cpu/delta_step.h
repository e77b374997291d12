#pragma once

/// One token of a gated delta net for each of many requests, on the CPU: the short convolution, the unit
/// lengths and the rule (kernels/causal_conv.h, gated_delta.h), with the request's state read and
/// written once. Called by engine/paged_attention.h once per layer.
///
/// Dimensions: S requests, J taps, E channels, N value heads, D key size, V value size.
///
/// The state of a request in a layer, float32:
///   tokens  [J - 1, E]   the last ones before the convolution, oldest first
///   heads   [N, D, V]

#include <cstdint>
#include <span>

#include "kernels/gated_delta.h"

namespace slime::kernels {

/// Numbers of a request's state in a layer.
inline int64_t delta_state_numbers(const DeltaShape& shape, int64_t taps) {
  return (taps - 1) * shape.channels() + shape.state();
}

struct DeltaStep {
  DeltaShape shape;
  int64_t taps = 0;
  const float* tap_JE = nullptr;    // weights of the convolution, a row for each tap
  const float* mixed_SE = nullptr;  // of the new tokens, before the convolution
  const float* decay_SN = nullptr;  // logarithms
  const float* rate_SN = nullptr;
  std::span<float* const> states;  // [S], each advanced by its token
  float* scratch_SE = nullptr;     // room for so many numbers
  float* out_SC = nullptr;         // [S, N V]
};

/// Runs on the kernel threads. A request's numbers do not depend on the others. The AVX2 form where the
/// processor has it.
void delta_step(const DeltaStep& step);

/// The same in plain loops: for other processors, and the twin that tests compare with.
void delta_step_portable(const DeltaStep& step);

}  // namespace slime::kernels
