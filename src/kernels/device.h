#pragma once

/// One interface between layers and the processor they run on: raw tensor operations without
/// gradients of their own.
///
/// The differentiable forms (kernels/linear.h, rms_norm.h, ...) are written once on top of it. The
/// CPU side is linked in; a GPU side is one more implementation, loaded at run time
/// (docs/how/kernels.md).
///
/// Dimensions: T tokens, H hidden, I inputs and O outputs of a matrix, F feed-forward width, N
/// query heads, K key-value heads, D head size, E = (N + 2 K) D. Activations have one precision,
/// weights another; `grad` arguments are added to in the accumulation precision and may be
/// undefined (a frozen weight), then nothing is added.

#include "core/tensor.h"
#include "kernels/group_starts.h"
#include "kernels/matrix.h"
#include "kernels/segments.h"

namespace slime::kernels {

/// How a fused projection becomes rotated heads.
struct RotaryShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0;  // of the q/k norm
};

/// Parameters of TreeAttention's kernel besides the tensors.
struct TreeAttentionShape {
  double scale = 1;
  int64_t window = 0;  // 0: all earlier tokens
  double cap = 0;      // of the scaled scores (kernels/soft_cap.h); 0: none
};

/// How logits enter the softmax: divided by the temperature, after a cap that they already have.
struct LogitForm {
  double temperature = 1;
  double cap = 0;  // kernels/soft_cap.h; 0: none
};

class Device {
 public:
  virtual ~Device() = default;

  /// table_VH rows at ids_T, in `activations` precision.
  virtual Tensor embedding(const Tensor& ids_T, const Tensor& table_VH,
                           at::ScalarType activations) const = 0;
  virtual void add_embedding_grad_(Tensor grad_VH, const Tensor& ids_T,
                                   const Tensor& dy_TH) const = 0;

  /// Whether its products take matrices of this format; plain ones all do.
  virtual bool has_format(MatrixFormat format) const { return format == MatrixFormat::kPlain; }

  /// x W^T + b, in the precision of x. bias may be undefined.
  virtual Tensor linear(const Tensor& x_TI, const Matrix& weight_OI,
                        const Tensor& bias_O) const = 0;
  /// The same into rows that there are, contiguous, of the precision of x.
  virtual void linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                           const Tensor& bias_O) const;
  /// The same with a float32 result (float64 for float64) whatever x is.
  virtual Tensor logits(const Tensor& x_TI, const Matrix& weight_OI) const = 0;
  /// x becomes cap * tanh(x / cap), in place (kernels/soft_cap.h).
  virtual void soft_cap_(Tensor x, double cap) const;
  /// dy W, in the precision of dy.
  virtual Tensor linear_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) const = 0;
  /// The same into rows that there are.
  virtual void linear_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO,
                                      const Matrix& weight_OI) const;
  /// Products that this thread begins from now on leave `count` multiprocessors to what runs beside
  /// them; 0: none.
  virtual void leave_processors(int /*count*/) const {}
  /// grad_OI += dy^T x.
  virtual void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                                       const Tensor& x_TI) const = 0;
  /// grad_O += column sums of dy.
  virtual void add_bias_grad_(Tensor grad_O, const Tensor& dy_TO) const = 0;

  /// The three products above for rows that have a matrix each. S rows, E matrices. A loop over the
  /// matrices, which needs the starts on the host, unless a device knows better.
  virtual Tensor grouped_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                                const GroupStarts& starts) const;
  virtual Tensor grouped_input_grad(const Tensor& dy_SO, const Matrix& weight_EOI,
                                    const GroupStarts& starts) const;
  virtual void add_grouped_weight_grad_(Tensor grad_EOI, const Tensor& dy_SO, const Tensor& x_SI,
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
  /// Gradient of x; adds that of the weight.
  virtual Tensor rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH, const Tensor& weight_H,
                                   double eps, Tensor grad_H) const = 0;
  /// Gradient of both addends, given those of the sum and of its norm; adds that of the weight.
  virtual Tensor add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH,
                                       const Tensor& sum_TH, const Tensor& weight_H, double eps,
                                       Tensor grad_H) const;

  /// silu(gate) * up, where each row of gate_up is [gate; up].
  virtual Tensor swiglu(const Tensor& gate_up_T2F) const = 0;
  virtual Tensor swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const = 0;
  /// swiglu(linear(x, weight, bias)), for which gates and ups need not be rounded. Without a gradient:
  /// training has the two operations.
  virtual Tensor gated_linear(const Tensor& x_TI, const Matrix& weight_2FI,
                              const Tensor& bias_2F) const;

  /// Norms (when the weights are defined) and rotates the query and key heads of each row; value
  /// heads stay. [T, E].
  virtual Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T,
                             const Tensor& q_norm_D, const Tensor& k_norm_D, const Tensor& cos_PR,
                             const Tensor& sin_PR, const RotaryShape& shape) const = 0;
  virtual Tensor norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE,
                                      const Tensor& positions_T, const Tensor& q_norm_D,
                                      const Tensor& k_norm_D, const Tensor& cos_PR,
                                      const Tensor& sin_PR, const RotaryShape& shape,
                                      Tensor q_norm_grad_D, Tensor k_norm_grad_D) const = 0;

  /// Attention over segments (kernels/tree_attention.h). heads_TE: rotated; logsumexp_TN receives
  /// float32 (float64) statistics for the backward. Returns [T, N D].
  virtual Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                const RotaryShape& heads, const TreeAttentionShape& shape,
                                Tensor& logsumexp_TN) const = 0;
  virtual Tensor tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                         const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                         const std::vector<Segment>& segments,
                                         const RotaryShape& heads,
                                         const TreeAttentionShape& shape) const = 0;

  /// From logits u = logits_RV / temperature: log-prob of the target, entropy and logsumexp per
  /// row, all [R]. A target of -1 is none, and counts as one whose u is 0.
  virtual void softmax_statistics(const Tensor& logits_RV, const Tensor& target_R,
                                  double temperature, Tensor& logprob_R, Tensor& entropy_R,
                                  Tensor& logsumexp_R) const = 0;
  /// Turns logits into their gradient, in place: given d logprob and d entropy (undefined: none)
  /// per row. A target of -1 is none.
  virtual void softmax_backward_(Tensor logits_RV, const Tensor& target_R, double temperature,
                                 const Tensor& logsumexp_R, const Tensor& entropy_R,
                                 const Tensor& dlogprob_R, const Tensor& dentropy_R) const = 0;
  /// The same gradient in `precision`, in memory of its own or the logits', which are overwritten;
  /// with a cap that of the logits before it.
  virtual Tensor softmax_gradient(const Tensor& logits_RV, const Tensor& target_R,
                                  const LogitForm& form, const Tensor& logsumexp_R,
                                  const Tensor& entropy_R, const Tensor& dlogprob_R,
                                  const Tensor& dentropy_R, at::ScalarType precision) const;
};

/// The implementation for the device this tensor is on.
const Device& kernels_for(const Tensor& tensor);

/// Products that this thread begins while it lives leave some multiprocessors to messages: a large
/// product would else hold all of them until it ends, and messages wait for it.
class RoomForMessages final {
 public:
  RoomForMessages(const Device& device, int processors) : device_(device) {
    device_.leave_processors(processors);
  }
  ~RoomForMessages() { device_.leave_processors(0); }
  RoomForMessages(const RoomForMessages&) = delete;
  RoomForMessages& operator=(const RoomForMessages&) = delete;

 private:
  const Device& device_;
};

/// Precision of gradients, statistics and logits: float64 for float64, float32 for everything else.
inline at::ScalarType accumulator_of(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace slime::kernels
