// Chains with experts whose matrices are codes, besides what they share with plain ones (cuda_device_experts.cpp).

#include <ATen/ATen.h>

#include "kernels/cuda/code_products.h"
#include "kernels/cuda/cuda_device.h"

namespace slime::kernels::cuda {

bool CudaDevice::has_coded_expert_chain(const BlockChain& chain) const {
  if (chain.experts == nullptr || chain.ranks != nullptr || !fp8::has_products()) return false;
  const RoutedExperts& experts = *chain.experts;
  for (const Tensor* tensor : {&chain.attended_TC, &chain.residual_TH, &chain.output_bias_H,
                               &chain.post_norm_H, &chain.next_norm_H, &chain.next_qkv_bias_E})
    if (!is_plain(*tensor)) return false;
  if (chain.residual_TH.size(1) > fp8::kMostNormed || !are_codes(experts) ||
      !has_routed_experts(chain.residual_TH, experts) || !has_code_products(chain.output_HC))
    return false;
  if (chain.next_qkv_EH.defined() && !has_code_products(chain.next_qkv_EH)) return false;
  return !experts.shared_down.defined() ||
         (has_code_products(experts.shared_gate_up) && has_code_products(experts.shared_down) &&
          experts.shared_gate_up.outputs() % 16 == 0);
}

/// From the router to the next attention with few rows: what visits return, and the shared expert, are partial sums, which
/// the norm adds up. With one or two rows that is the prologue of the next product.
Tensor CudaDevice::few_code_end(const BlockChain& chain, const Tensor& input_TH,
                                const Tensor& sum_TH, const Tensor& expert_TK,
                                const Tensor& weight_TK) const {
  const RoutedExperts& experts = *chain.experts;
  const cudaStream_t stream = stream_of(input_TH);
  const int64_t rows = input_TH.size(0), hidden = input_TH.size(1), visits = experts.rule.per_token;
  const bool has_shared = experts.shared_down.defined();
  const Tensor parts_STH = at::empty({visits + (has_shared ? 1 : 0), rows, hidden},
                                     input_TH.options().dtype(at::kFloat));
  if (has_shared)
    gated_code_mlp_into(parts_STH.select(0, visits), input_TH, experts.shared_gate_up,
                        experts.shared_down, stream);
  const VisitParts parts{parts_STH, weight_TK};
  visit_experts(input_TH, expert_TK, experts, &parts);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, input_TH.options());
  const fp8::Product qkv =
      code_product_of(chain.next_qkv_EH, chain.next_qkv_bias_E, rows, heads_TE);
  const auto* added_STH = parts_STH.const_data_ptr<float>();
  const auto splits = static_cast<int>(parts_STH.size(0));
  const auto eps = static_cast<float>(chain.eps);
  if (fp8::has_narrow_product(rows, hidden)) {
    const fp8::Norm norm{.residual_TI = pointer(sum_TH),
                         .added_STI = added_STH,
                         .splits = splits,
                         .weight_I = pointer(chain.next_norm_H),
                         .sum_TI = chain.residual_TH.data_ptr(),
                         .eps = eps};
    fp8::narrow_product(qkv, nullptr, norm, stream);
    return heads_TE;
  }
  const CodeRows normed(rows, hidden, input_TH.options());
  fp8::norm_rows(pointer(sum_TH), chain.residual_TH.data_ptr(), added_STH, splits, nullptr,
                 pointer(chain.next_norm_H), normed.of(), rows, hidden, eps, stream);
  multiply_codes(qkv, normed, stream);
  return heads_TE;
}

}  // namespace slime::kernels::cuda
