#pragma once

/// Kernels of a layer's backward pass.
///
/// Dimensions: T tokens, H hidden, I inputs and O outputs of a matrix, F feed-forward width, N query heads, K
/// key-value heads, D head size, E = (N + 2 K) D. Activations have one precision, weights another.
/// `grad` arguments are added to in the accumulation precision and may be undefined (a frozen weight), then
/// nothing is added.

#include "core/tensor.h"
#include "kernels/group_starts.h"
#include "kernels/layer_shapes.h"
#include "kernels/matrix.h"
#include "kernels/segments.h"

namespace slime::kernels {

class GradientKernels {
 public:
  virtual ~GradientKernels() = default;

  /// sum_VH[row_T[t]] += x_TH[t], in the order of t: the same bits every time.
  virtual void add_rows_(Tensor sum_VH, const Tensor& row_T, const Tensor& x_TH) const = 0;

  /// dy W, in the precision of dy.
  virtual Tensor linear_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) const = 0;

  /// linear_input_grad() into rows that there are.
  virtual void linear_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO,
                                      const Matrix& weight_OI) const;

  /// grad_OI += dy^T x.
  virtual void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                                       const Tensor& x_TI) const = 0;

  /// Adds to dx what goes through the adapter beside the matrix (kernels/adapters.h), and to the gradients of its pairs.
  virtual void add_pairs_input_grad_(const Tensor& dx_TI, const Tensor& dy_TO,
                                     const Matrix& weight_OI) const;
  virtual void add_pairs_weight_grad_(const Matrix& weight_OI, const Tensor& dy_TO,
                                      const Tensor& x_TI) const;
  /// The way back through a matrix with adapters: its pairs' gradients, and dx. `hidden`: of linear_with_pairs().
  virtual Tensor pairs_backward(const Matrix& weight_OI, const Tensor& dy_TO, const Tensor& x_TI,
                                const Tensor& hidden) const;

  /// grad_O += column sums of dy.
  virtual void add_bias_grad_(Tensor grad_O, const Tensor& dy_TO) const = 0;

  /// The products of rows that have a matrix each: S rows, E matrices. A loop over the matrices unless a
  /// device knows better.
  virtual Tensor grouped_input_grad(const Tensor& dy_SO, const Matrix& weight_EOI,
                                    const GroupStarts& starts) const;
  virtual void add_grouped_weight_grad_(Tensor grad_EOI, const Tensor& dy_SO, const Tensor& x_SI,
                                        const GroupStarts& starts) const;

  /// Gradient of x; adds that of the weight.
  virtual Tensor rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH, const Tensor& weight_H,
                                   double eps, Tensor grad_H) const = 0;

  /// Gradient of both addends, given those of the sum and of its norm; adds that of the weight.
  virtual Tensor add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH,
                                       const Tensor& sum_TH, const Tensor& weight_H, double eps,
                                       Tensor grad_H) const = 0;
  virtual Tensor swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const = 0;
  virtual Tensor norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE,
                                      const Tensor& positions_T, const Tensor& q_norm_D,
                                      const Tensor& k_norm_D, const Tensor& cos_PR,
                                      const Tensor& sin_PR, const RotaryShape& shape,
                                      Tensor q_norm_grad_D, Tensor k_norm_grad_D) const = 0;
  virtual Tensor tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                         const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                         const std::vector<Segment>& segments,
                                         const RotaryShape& heads,
                                         const TreeAttentionShape& shape) const = 0;

  /// Turns logits into their gradient, in place: given d logprob and d entropy (undefined: none)
  /// per row. A target of -1 is none.
  virtual void softmax_backward_(Tensor logits_RV, const Tensor& target_R, double temperature,
                                 const Tensor& logsumexp_R, const Tensor& entropy_R,
                                 const Tensor& dlogprob_R, const Tensor& dentropy_R) const = 0;

  /// The gradient of softmax_backward_() in `precision`, in memory of its own or the logits', which are overwritten;
  /// with a cap that of the logits before it.
  virtual Tensor softmax_gradient(const Tensor& logits_RV, const Tensor& target_R,
                                  const LogitForm& form, const Tensor& logsumexp_R,
                                  const Tensor& entropy_R, const Tensor& dlogprob_R,
                                  const Tensor& dentropy_R, at::ScalarType precision) const;
};

}  // namespace slime::kernels
