#pragma once

/// kernels::Device on an NVIDIA GPU: our kernels where they are written, plain ATen for the rest
/// (which is also their slow twin).

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/adapters.h"
#include "kernels/block_chain.h"
#include "kernels/cpu/reference.h"
#include "kernels/cuda/attention/packed_attention.h"
#include "kernels/cuda/products/batch_invariant_linear.h"
#include "kernels/cuda/products/gated_product.h"
#include "kernels/cuda/products/linear.h"
#include "kernels/delta_kernels.h"
#include "kernels/matrix.h"
#include "kernels/routed_experts.h"

namespace slime::kernels::cuda {

/// Of its numbers; null for an undefined tensor.
const void* pointer(const Tensor& tensor);
template <typename T>
const T* array(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}
/// Of the numbers of a plain matrix (kernels/matrix.h).
inline const void* pointer(const Matrix& matrix) { return pointer(matrix.plain()); }
/// Kernels may read its first numbers 16 bytes at once.
bool is_aligned(const Tensor& tensor);
/// A bfloat16 matrix or vector that kernels read as it lies, or none.
bool is_plain(const Tensor& tensor);
inline bool is_plain(const Matrix& matrix) { return matrix.is_plain() && is_plain(matrix.values); }
/// Whether its precision is one that kernels are compiled for.
bool has_number(const Tensor& tensor);
/// Throws BugError for others.
Number number_of(const Tensor& tensor);
/// Norms of queries and keys in float32 where rows are not: those that multiply with one plus a weight.
bool are_float_norms(const Tensor& rows, const Tensor& q_norm_D);
/// Whether our kernels take both: in the precision of the rows, or both in float32.
bool are_norms_ours(const Tensor& rows, const Tensor& q_norm_D, const Tensor& k_norm_D);
/// The current stream of the tensor's device.
cudaStream_t stream_of(const Tensor& tensor);

/// Results of a few rows' visits, to be added up with their weights (kernels/cuda/experts/expert_codes.h).
struct VisitParts {
  Tensor parts_KTH;  // float32
  Tensor weight_TK;  // float32
};

class CudaDevice final : public cpu::ReferenceDevice,
                         public BlockChains,
                         public ExpertKernels,
                         public DeltaKernels,
                         public AdapterTables {
 public:
  // Matrices in codes: cuda_device_codes.cpp
  bool has_format(MatrixFormat format) const override;
  bool make_codes(MatrixFormat format, const Tensor& plain_OI, const Tensor& codes_OI,
                  const Tensor& scales_BC) const override;

  /// For measurements: each kernel that could compute x W^T.
  std::vector<ProductCandidate> product_candidates(const Tensor& x_TI, const Tensor& weight_OI,
                                                   bool float_result) const;

  Tensor embedding(const Tensor& ids_T, const Tensor& table_VH,
                   at::ScalarType activations) const override;
  Tensor linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O) const override;
  void linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                   const Tensor& bias_O) const override;
  void leave_processors(int count) const override;
  void compute_in(Arithmetic arithmetic) const override;
  Arithmetic arithmetic() const override;
  Tensor logits(const Tensor& x_TI, const Matrix& weight_OI) const override;
  Tensor rms_norm(const Tensor& x_TH, const Tensor& weight_H, double eps) const override;
  Tensor add_rms_norm_(Tensor x_TH, const Tensor& update_TH, const Tensor& weight_H,
                       double eps) const override;
  Tensor add_rms_norm(const Tensor& x_TH, const Tensor& update_TH, const Tensor& weight_H,
                      double eps, Tensor& sum_TH) const override;
  Tensor swiglu(const Tensor& gate_up_T2F) const override;
  Tensor gated_linear(const Tensor& x_TI, const Matrix& weight_2FI,
                      const Tensor& bias_2F) const override;
  Tensor norm_rotate(const Tensor& qkv_TE, const Tensor& positions_T, const Tensor& q_norm_D,
                     const Tensor& k_norm_D, const Tensor& cos_PR, const Tensor& sin_PR,
                     const RotaryShape& shape) const override;

  // Decode: cuda_device_chain.cpp
  bool has_block_chain(const BlockChain& chain) const override;
  Tensor block_chain(const BlockChain& chain) const override;

  // Gated delta nets: cuda_device_delta.cpp
  std::optional<DeltaRates> delta_rates(const Tensor& a_TN, const Tensor& b_TN,
                                        const Tensor& a_log_N, const Tensor& bias_N) const override;
  std::optional<Tensor> gated_norm(const Tensor& x_TC, const Tensor& z_TC, const Tensor& weight_V,
                                   double eps) const override;

  // Experts: cuda_device_experts.cpp
  bool has_routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const override;
  Tensor routed_experts(const Tensor& x_TH, const RoutedExperts& experts) const override;
  VisitedExperts visited_experts() const override;
  bool has_exact_experts(const ExpertSizes& sizes) const override;
  RouterChoices exact_choices(const Tensor& x_TH, const RoutedExperts& experts) const override;
  std::optional<GatedGradients> gated_gradients(const Tensor& dgated_SF, const Tensor& gate_up_S2F,
                                                const Tensor& weight_S) const override;
  Tensor grouped_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                        const GroupStarts& starts) const override;
  Tensor grouped_gated_linear(const Tensor& x_SI, const Matrix& weight_EOI,
                              const GroupStarts& starts) const override;
  Tensor grouped_input_grad(const Tensor& dy_SO, const Matrix& weight_EOI,
                            const GroupStarts& starts) const override;
  void add_grouped_weight_grad_(Tensor grad_EOI, const Tensor& dy_SO, const Tensor& x_SI,
                                const GroupStarts& starts) const override;
  Tensor sum_visits(const Tensor& rows_SH, const Tensor& place_TK,
                    const Tensor& weight_TK) const override;

  // Adapters: cuda_device_adapters.cpp, cuda_device_adapter_tables.cpp
  void check_pairs(const std::vector<const LowRankPair*>& pairs) const override;
  bool place_pairs(std::span<MatrixAdapters* const> matrices) const override;
  Tensor add_pairs(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                   at::ScalarType precision) const override;
  Tensor linear_with_pairs(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                           Tensor* hidden) const override;
  Tensor gated_linear_with_pairs(const Tensor& x_TI, const Matrix& weight_2FI,
                                 const Tensor& bias_2F) const override;
  Tensor pairs_backward(const Matrix& weight_OI, const Tensor& dy_TO, const Tensor& x_TI,
                        const Tensor& hidden) const override;
  void add_pairs_input_grad_(const Tensor& dx_TI, const Tensor& dy_TO,
                             const Matrix& weight_OI) const override;
  void add_pairs_weight_grad_(const Matrix& weight_OI, const Tensor& dy_TO,
                              const Tensor& x_TI) const override;

  // Training arithmetic: cuda_device_exact.cpp
  Tensor tree_attention_in_pages(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                 const RotaryShape& heads, const TreeAttentionShape& shape,
                                 const Tensor& sinks_N, Tensor& logsumexp_TN) const override;

  // Training: cuda_device_training.cpp
  void add_rows_(Tensor sum_VH, const Tensor& row_T, const Tensor& x_TH) const override;
  void linear_input_grad_into(const Tensor& dx_TI, const Tensor& dy_TO,
                              const Matrix& weight_OI) const override;
  void add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                               const Tensor& x_TI) const override;
  Tensor rms_norm_backward(const Tensor& dy_TH, const Tensor& x_TH, const Tensor& weight_H,
                           double eps, Tensor grad_H) const override;
  Tensor add_rms_norm_backward(const Tensor& dsum_TH, const Tensor& dy_TH, const Tensor& sum_TH,
                               const Tensor& weight_H, double eps, Tensor grad_H) const override;
  Tensor swiglu_backward(const Tensor& dy_TF, const Tensor& gate_up_T2F) const override;
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
  void soft_cap_(Tensor x, double cap) const override;
  Tensor softmax_gradient(const Tensor& logits_RV, const Tensor& target_R, const LogitForm& form,
                          const Tensor& logsumexp_R, const Tensor& entropy_R,
                          const Tensor& dlogprob_R, const Tensor& dentropy_R,
                          at::ScalarType precision) const override;

 private:
  Tensor product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                 bool float_result) const;
  static LinearCall product_call(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                                 const Tensor& bias_O);
  static GatedProduct gated_call(const Tensor& x_TI, const Matrix& weight_2FI,
                                 const Tensor& bias_2F);
  static bool has_gated(const Tensor& x_TI, const Matrix& weight_2FI, const Tensor& bias_2F);
  static Tensor product_workspace(const Tensor& x_TI);
  void product_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                    const Tensor& bias_O) const;
  // cuda_device_codes.cpp
  bool multiplies_codes(const Tensor& x_TI, const Matrix& weight_OI) const;
  Tensor code_product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                      bool float_result) const;
  bool has_code_chain(const BlockChain& chain) const;
  Tensor code_chain(const BlockChain& chain) const;
  void add_factor_grads_(const std::vector<PairRange>& ranges, const Tensor& dy_TO,
                         const Tensor& x_TI, const Tensor& scaled_h_TR,
                         const Tensor& scaled_dh_TR) const;
  Tensor stored_product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                        cudaStream_t stream) const;
  Tensor expert_chain(const BlockChain& chain) const;
  Tensor expert_chain_of_ranks(const BlockChain& chain) const;
  bool has_chained_experts(const Tensor& x_TH, const RoutedExperts& experts) const;
  /// Whether all its matrices but the router are in codes that kernels have.
  bool has_coded_expert_chain(const BlockChain& chain) const;
  Tensor few_code_end(const BlockChain& chain, const Tensor& input_TH, const Tensor& sum_TH,
                      const Tensor& expert_TK, const Tensor& weight_TK) const;
  /// What the shared expert returns, [T, H]: in float32 for the prologue of a narrow product.
  Tensor visit_shared(const Tensor& x_TH, const RoutedExperts& experts, bool float_result) const;
  Tensor sum_with_shared(const Tensor& rows_VH, const Tensor& weight_TK,
                         const Tensor& shared_TH) const;
  /// What each visit returns, [T K, H], before its weight; with `parts`, nothing: it goes there.
  Tensor visit_experts(const Tensor& x_TH, const Tensor& expert_TK, const RoutedExperts& experts,
                       const VisitParts* parts = nullptr) const;
  Tensor sum_of_visits(const Tensor& rows_SH, const Tensor& place_TK,
                       const Tensor& weight_TK) const;
  /// Of these segments, made once for all layers: cuda_device_exact.cpp. Under attention_mutex_.
  struct ExactBatch;
  const ExactBatch& exact_batch(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                const RotaryShape& heads) const;
  // Attention whose window ends in other segments, as sequences: cuda_device_windows.cpp. Under
  // attention_mutex_.
  struct WindowedBatch;
  /// Of these segments, made once for all layers; null where some are only looked at.
  const WindowedBatch* windowed_batch(const Tensor& heads_TE, const std::vector<Segment>& segments,
                                      int64_t window) const;
  Tensor windowed_attention(const Tensor& heads_TE, const WindowedBatch& batch,
                            const RotaryShape& heads, const TreeAttentionShape& shape,
                            Tensor& logsumexp_TN) const;
  Tensor windowed_attention_backward(const Tensor& dy_TC, const Tensor& y_TC,
                                     const Tensor& heads_TE, const Tensor& logsumexp_TN,
                                     const WindowedBatch& batch, const RotaryShape& heads,
                                     const TreeAttentionShape& shape) const;
  /// Null where no kernel has the shape. Under attention_mutex_.
  PackedAttention* packed_attention(const Tensor& heads_TE, const RotaryShape& heads,
                                    const TreeAttentionShape& shape) const;

  mutable Linear linear_;                          // has its own lock
  mutable BatchInvariantLinear invariant_linear_;  // likewise
  mutable std::mutex visited_mutex_;
  mutable Tensor visited_2_;  // guarded; of VisitedExperts, on the device
  mutable std::mutex attention_mutex_;
  mutable std::unique_ptr<PackedAttention> attention_;  // guarded; cuDNN is loaded by training only
  mutable std::shared_ptr<const WindowedBatch> windowed_;  // guarded; of the last batch
  mutable std::shared_ptr<const ExactBatch> exact_;        // likewise
};

}  // namespace slime::kernels::cuda
