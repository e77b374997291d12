#pragma once

/// The kernels in plain ATen: any precision, any shape, any processor, and on a GPU too. What the
/// fast forms are measured against, and what runs where no fast form exists (float64, processors
/// without AVX2).

#include "kernels/device.h"

namespace slime::kernels::cpu {

class ReferenceDevice : public Device {
 public:
  bool has_format(MatrixFormat) const override { return true; }
  bool has_adapters() const override { return true; }
  Tensor embedding(const Tensor& ids_T, const Tensor& table_VH,
                   at::ScalarType activations) const override;
  void add_rows_(Tensor sum_VH, const Tensor& row_T, const Tensor& x_TH) const override;
  Tensor linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O) const override;
  Tensor logits(const Tensor& x_TI, const Matrix& weight_OI) const override;
  Tensor linear_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) const override;
  void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                               const Tensor& x_TI) const override;
  void add_bias_grad_(Tensor grad_O, const Tensor& dy_TO) const override;
  Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const override;
  Tensor add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                       double eps) const override;
  Tensor rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH, const Tensor& weight_H,
                           double eps, Tensor grad_H) const override;
  Tensor swiglu(const Tensor& gate_up_T2F) const override;
  Tensor swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const override;
  Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T, const Tensor& q_norm_D,
                     const Tensor& k_norm_D, const Tensor& cos_PR, const Tensor& sin_PR,
                     const RotaryShape& shape) const override;
  Tensor norm_rotate_backward(const Tensor& dy_TE, const Tensor& qkv_TE, const Tensor& positions_T,
                              const Tensor& q_norm_D, const Tensor& k_norm_D, const Tensor& cos_PR,
                              const Tensor& sin_PR, const RotaryShape& shape, Tensor q_norm_grad_D,
                              Tensor k_norm_grad_D) const override;
  Tensor tree_attention(const Tensor& heads_TE, const std::vector<Segment>& segments,
                        const RotaryShape& heads, const TreeAttentionShape& shape,
                        Tensor& logsumexp_TN) const override;
  Tensor tree_attention_backward(const Tensor& dy_TC, const Tensor& y_TC, const Tensor& heads_TE,
                                 const Tensor& logsumexp_TN, const std::vector<Segment>& segments,
                                 const RotaryShape& heads,
                                 const TreeAttentionShape& shape) const override;
  void softmax_statistics(const Tensor& logits_RV, const Tensor& target_R, double temperature,
                          Tensor& logprob_R, Tensor& entropy_R, Tensor& logsumexp_R) const override;
  void softmax_backward_(Tensor logits_RV, const Tensor& target_R, double temperature,
                         const Tensor& logsumexp_R, const Tensor& entropy_R,
                         const Tensor& dlogprob_R, const Tensor& dentropy_R) const override;
};

}  // namespace slime::kernels::cpu
