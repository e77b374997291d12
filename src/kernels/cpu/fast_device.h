#pragma once

/// The CPU kernels for processors with AVX2: own loops for float32 and bfloat16 activations, own
/// tiles (AVX-512 BF16, AMX) for bfloat16 products, ReferenceDevice for everything else.

#include "kernels/cpu/reference.h"

namespace slime::kernels::cpu {

class FastDevice final : public ReferenceDevice {
 public:
  Tensor linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O) const override;
  Tensor logits(const Tensor& x_TI, const Matrix& weight_OI) const override;
  Tensor linear_input_grad(const Tensor& dy_TO, const Matrix& weight_OI) const override;
  void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                               const Tensor& x_TI) const override;
  Tensor grouped_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                        const GroupStarts& starts) const override;
  Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const override;
  Tensor add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                       double eps) const override;
  Tensor sum(const Tensor& a, const Tensor& b) const override;
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
  Tensor latent_attention_in_pages(const Tensor& heads_TE, const Tensor& rotary_row_T,
                                   const Tensor& cos_PR, const Tensor& sin_PR,
                                   const std::vector<Segment>& segments, const RotaryShape& heads,
                                   const TreeAttentionShape& shape) const override;
  Tensor tree_attention_in_pages(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                 const RotaryShape& heads, const TreeAttentionShape& shape,
                                 const Tensor& sinks_N, Tensor& logsumexp_TN) const override;
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
  Tensor softmax_gradient(const Tensor& logits_RV, const Tensor& target_R, const LogitForm& form,
                          const Tensor& logsumexp_R, const Tensor& entropy_R,
                          const Tensor& dlogprob_R, const Tensor& dentropy_R,
                          at::ScalarType precision) const override;
  void soft_cap_(Tensor x, double cap) const override;
};

}  // namespace slime::kernels::cpu
