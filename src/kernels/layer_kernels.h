#pragma once

/// Kernels of a layer's forward pass, which trainer and engine share.
///
/// Dimensions: T tokens, H hidden, I inputs and O outputs of a matrix, F feed-forward width, N query heads, K
/// key-value heads, D head size, E = (N + 2 K) D. Activations have one precision, weights another.

#include "core/tensor.h"
#include "kernels/group_starts.h"
#include "kernels/layer_shapes.h"
#include "kernels/matrix.h"
#include "kernels/segments.h"

namespace slime::kernels {

class LayerKernels {
 public:
  virtual ~LayerKernels() = default;

  /// table_VH rows at ids_T, in `activations` precision.
  virtual Tensor embedding(const Tensor& ids_T, const Tensor& table_VH,
                           at::ScalarType activations) const = 0;

  /// x W^T + b, in the precision of x. bias may be undefined.
  virtual Tensor linear(const Tensor& x_TI, const Matrix& weight_OI,
                        const Tensor& bias_O) const = 0;

  /// The same into rows that there are, contiguous, of the precision of x.
  virtual void linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                           const Tensor& bias_O) const;

  /// The same with a float32 result (float64 for float64) whatever x is.
  virtual Tensor logits(const Tensor& x_TI, const Matrix& weight_OI) const = 0;

  /// y and what the adapters beside the matrix add to its product (kernels/adapters.h), summed in the accumulation
  /// precision, which y has, and rounded once. y may be the sum.
  virtual Tensor add_pairs(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                           at::ScalarType precision) const;

  /// linear() and gated_linear() of a matrix with adapters. `hidden` not null: becomes x A^T as pairs_backward() of
  /// this product takes it, or stays undefined where that computes it again.
  virtual Tensor linear_with_pairs(const Tensor& x_TI, const Matrix& weight_OI,
                                   const Tensor& bias_O, Tensor* hidden) const;
  virtual Tensor gated_linear_with_pairs(const Tensor& x_TI, const Matrix& weight_2FI,
                                         const Tensor& bias_2F) const;

  /// x becomes cap * tanh(x / cap), in place (kernels/soft_cap.h).
  virtual void soft_cap_(Tensor x, double cap) const;

  /// linear() of rows that have a matrix each. S rows, E matrices. A loop over the matrices, which needs the
  /// starts on the host, unless a device knows better.
  virtual Tensor grouped_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                                const GroupStarts& starts) const;

  /// gated_linear() of such rows.
  virtual Tensor grouped_gated_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                                      const GroupStarts& starts) const;

  /// y_t = sum over k of weight[t, k] * rows[place[t, k]], in the order of k, summed in the
  /// accumulation precision and rounded once. weight_TK undefined: all ones.
  virtual Tensor sum_visits(const Tensor& rows_SH, const Tensor& place_TK,
                            const Tensor& weight_TK) const;

  /// x / sqrt(mean(x^2) + eps) * weight per row.
  virtual Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const = 0;

  /// x += update, then the norm of x.
  virtual Tensor add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                               double eps) const = 0;

  /// a + b, of one shape and precision.
  virtual Tensor sum(const Tensor& a, const Tensor& b) const;

  /// The same as add_rms_norm_ without touching x: sum_TH becomes x + update.
  virtual Tensor add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Tensor& weight_H,
                              double eps, Tensor& sum_TH) const;

  /// silu(gate) * up, where each row of gate_up is [gate; up].
  virtual Tensor swiglu(const Tensor& gate_up_T2F) const = 0;

  /// swiglu(linear(x, weight, bias)), for which gates and ups need not be rounded. Without a gradient:
  /// training has the two operations.
  virtual Tensor gated_linear(const Tensor& x_TI, const Matrix& weight_2FI,
                              const Tensor& bias_2F) const;

  /// Norms (when the weights are defined) and rotates the query and key heads of each row; value
  /// heads stay. [T, E].
  virtual Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T,
                             const Tensor& q_norm_D, const Tensor& k_norm_D, const Tensor& cos_PR,
                             const Tensor& sin_PR, const RotaryShape& shape) const = 0;

  /// Attention over segments (kernels/tree_attention.h). heads_TE: rotated; logsumexp_TN receives
  /// float32 (float64) statistics for the backward. Returns [T, N D].
  virtual Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                const RotaryShape& heads, const TreeAttentionShape& shape,
                                Tensor& logsumexp_TN) const = 0;

  /// The same with the bits of the engine's paged attention, on a GPU those of its steps in training arithmetic, for
  /// whatever else is in the batch. The sinks (undefined: none) are in the result and in the statistics. On CPUs with
  /// AVX2, and on GPUs where EngineKernels::has_exact_attention() says so, without windows.
  virtual Tensor tree_attention_in_pages(const Tensor& heads_TE,
                                         const std::vector<Segment>& segments,
                                         const RotaryShape& heads, const TreeAttentionShape& shape,
                                         const Tensor& sinks_N, Tensor& logsumexp_TN) const;

  /// The same of latent attention in its absorbed form: one key head that is also the values. heads_TE:
  /// [T, (N + 1) D], not yet rotated; the first numbers of a head rotate, by rows of the tables.
  virtual Tensor latent_attention_in_pages(const Tensor& heads_TE, const Tensor& rotary_row_T,
                                           const Tensor& cos_PR, const Tensor& sin_PR,
                                           const std::vector<Segment>& segments,
                                           const RotaryShape& heads,
                                           const TreeAttentionShape& shape) const;

  /// From logits u = logits_RV / temperature: log-prob of the target, entropy and logsumexp per
  /// row, all [R]. A target of -1 is none, and counts as one whose u is 0.
  virtual void softmax_statistics(const Tensor& logits_RV, const Tensor& target_R,
                                  double temperature, Tensor& logprob_R, Tensor& entropy_R,
                                  Tensor& logsumexp_R) const = 0;
};

}  // namespace slime::kernels
