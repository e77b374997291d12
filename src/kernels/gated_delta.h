#pragma once

/// The gated delta rule (arXiv 2412.06464): a head's state is a matrix that decays, and into which each
/// token writes its value under its key, after it took out what stood there.
///
///   S = exp(decay_t) S
///   S = S + k_t (rate_t (v_t - k_t^T S))^T        o_t = S^T q_t / sqrt(D)
///
/// Queries and keys are scaled to length one. Here it is computed chunk by chunk (kernels/delta_plan.h):
/// within a chunk products of matrices and one triangular solution, from chunk to chunk the state
/// (section 3.3 there). One token at a time, as decode has it: kernels/cpu/delta_step.h.
///
/// Dimensions: T tokens, K key heads, N value heads (N / K of them share a key head), D key size,
/// V value size, E = 2 K D + N V, M chunks, C tokens of a chunk.

#include "core/tensor.h"
#include "kernels/delta_plan.h"

namespace slime::kernels {

struct DeltaShape {
  int64_t key_heads = 0;    // K
  int64_t value_heads = 0;  // N
  int64_t key_dim = 0;      // D
  int64_t value_dim = 0;    // V

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  // E
  int64_t state() const { return value_heads * key_dim * value_dim; }
  bool operator==(const DeltaShape&) const = default;
};

/// Of the squared length of queries and keys.
inline constexpr double kDeltaEps = 1e-6;

/// What a layer's rule reads, float32 (float64).
struct DeltaTokens {
  Tensor mixed_TE;  // queries, keys, values
  Tensor decay_TN;  // logarithms, at most 0
  Tensor rate_TN;   // between 0 and 1
};

/// [T, N V]. States begin with zeros. Differentiable in grad mode: states are made again in the backward,
/// and their gradients flow back to the parents of segments.
Tensor gated_delta(const DeltaTokens& in, const DeltaShape& shape, const DeltaPlan& plan);

/// Without gradients, from the states of roots to those behind them.
struct DeltaRun {
  Tensor out_TC;      // [T, N V]
  Tensor state_SNDV;  // of each segment at its end
};
DeltaRun gated_delta_from(const Tensor& start_RNDV, const DeltaTokens& in, const DeltaShape& shape,
                          const DeltaPlan& plan);

}  // namespace slime::kernels
