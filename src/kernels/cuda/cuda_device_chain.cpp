#include <ATen/ATen.h>

#include <optional>

#include "kernels/adapters.h"
#include "kernels/cuda/chain_adapters.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/low_rank_counts.h"
#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/cuda/products/wide_product.h"
#include "kernels/cuda/rows/rows.h"

namespace slime::kernels::cuda {
namespace {

/// A product of a matrix, whose adapters add to it (ChainAddition).
struct ChainProduct {
  ChainProduct(const Tensor& of_x_TI, const Matrix& of_weight_OI, const Tensor& bias_O)
      : x_TI(of_x_TI), weight_OI(of_weight_OI) {
    call.x_TI = pointer(x_TI);
    call.weight_OI = pointer(weight_OI.values);
    call.bias_O = pointer(bias_O);
    call.rows = static_cast<int>(x_TI.size(0));
    call.inputs = static_cast<int>(weight_OI.inputs());
    call.outputs = static_cast<int>(weight_OI.outputs());
  }

  const Tensor& x_TI;
  const Matrix& weight_OI;
  BatchProduct call;
};

/// Those of the network where this product has an addition.
unsigned* counts_of(const Matrix& weight_OI, cudaStream_t stream) {
  return has_addition(weight_OI) ? low_rank_counts(*weight_OI.adapters->rows, stream) : nullptr;
}

/// Flags of the network where a batch's product can make what is added itself (ChainAddition::made_by()).
std::optional<ChainAddition> made_by(const ChainProduct& product, cudaStream_t stream) {
  if (!has_addition(product.weight_OI)) return std::nullopt;
  return ChainAddition::made_by(product.call, product.x_TI, product.weight_OI,
                                low_rank_flags(*product.weight_OI.adapters->rows, stream));
}

/// Those of the matrix likewise.
unsigned* flag_of(const Matrix& weight_OI, cudaStream_t stream) {
  return has_addition(weight_OI) ? low_rank_counts(*weight_OI.adapters, stream) : nullptr;
}

bool is_narrow(const BlockChain& chain, cudaStream_t stream) {
  const int64_t rows = chain.residual_TH.size(0);
  const auto has = [&](const Matrix& weight_OI) {
    return has_narrow_product(Number::kBFloat16, rows, weight_OI.inputs()) &&
           (!has_addition(weight_OI) || counts_of(weight_OI, stream) != nullptr);
  };
  return chain.next_norm_H.defined() && has(chain.output_HC) && has(chain.gate_up_2FH) &&
         has(chain.down_HF) && has(chain.next_qkv_EH);
}

/// Whether the kernels multiply with this matrix, if it is there, and add what its adapters do.
bool is_in_chain(const BlockChain& chain, const Matrix& weight_OI,
                 BatchProduct::Epilogue epilogue) {
  if (weight_OI.format != MatrixFormat::kPlain || !is_plain(weight_OI.values)) return false;
  const bool is_alone = chain.ranks == nullptr && chain.experts == nullptr;
  return is_alone ? has_chain_addition(weight_OI, chain.residual_TH.size(0), epilogue)
                  : weight_OI.adapters == nullptr;
}

/// Whether the ranks, where there are several, have sum and norm in one kernel.
bool fuses_sums(const BlockChain& chain) {
  return chain.ranks == nullptr || chain.ranks->has_add_norm(chain.residual_TH);
}

Tensor narrow(ChainProduct product, const Tensor& y, const NormPrologue& norm,
              cudaStream_t stream) {
  product.call.y = y.data_ptr();
  product.call.float_result = y.scalar_type() == at::kFloat;
  float* const polled = has_addition(product.weight_OI)
                            ? low_rank_polled(*product.weight_OI.adapters->rows, stream)
                            : nullptr;
  const ChainAddition addition(product.x_TI, product.weight_OI,
                               counts_of(product.weight_OI, stream), polled);
  product.call.addition = addition.call();
  narrow_product(product.call, norm, stream);
  return y;
}

/// Of one or two rows on several ranks, whose sums are kernels that also norm.
Tensor narrow_chain_of_ranks(const BlockChain& chain, cudaStream_t stream) {
  const int64_t rows = chain.residual_TH.size(0);
  const auto options = chain.residual_TH.options();
  const auto added_norm = [&](const Tensor& x_TI, const Matrix& weight_HI, const Tensor& bias_H,
                              const Tensor& norm_H) {
    const Tensor part_TH = at::empty_like(chain.residual_TH, options.dtype(at::kFloat));
    narrow(ChainProduct(x_TI, weight_HI, bias_H), part_TH, {}, stream);
    return chain.ranks->add_norm_(chain.residual_TH, part_TH, {}, norm_H, chain.eps);
  };
  const Tensor input_TH =
      added_norm(chain.attended_TC, chain.output_HC, chain.output_bias_H, chain.post_norm_H);
  ChainProduct gate_up(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  gate_up.call.epilogue = BatchProduct::Epilogue::kSwiglu;
  const Tensor gated_TF =
      narrow(gate_up, at::empty({rows, chain.down_HF.inputs()}, options), {}, stream);
  const Tensor next_TH = added_norm(gated_TF, chain.down_HF, chain.down_bias_H, chain.next_norm_H);
  return narrow(ChainProduct(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E),
                at::empty({rows, chain.next_qkv_EH.outputs()}, options), {}, stream);
}

/// Of one or two rows: the norms are the prologues of the products behind them.
Tensor narrow_chain(const BlockChain& chain, cudaStream_t stream) {
  const int64_t rows = chain.residual_TH.size(0);
  const auto options = chain.residual_TH.options();
  const auto multiply = [&](const ChainProduct& product, const Tensor& y,
                            const NormPrologue& norm = {}) {
    return narrow(product, y, norm, stream);
  };
  const auto norm_of = [&](const Tensor& residual_TH, const Tensor& added_TH,
                           const Tensor& weight_H, const Tensor& sum_TH) {
    NormPrologue norm;
    norm.residual_TI = pointer(residual_TH);
    norm.added_TI = added_TH.const_data_ptr<float>();
    norm.weight_I = pointer(weight_H);
    norm.sum_TI = sum_TH.data_ptr();
    norm.eps = static_cast<float>(chain.eps);
    return norm;
  };
  const Tensor sum_TH = at::empty_like(chain.residual_TH),
               added_TH = at::empty_like(chain.residual_TH, options.dtype(at::kFloat));
  multiply(ChainProduct(chain.attended_TC, chain.output_HC, chain.output_bias_H), added_TH);
  ChainProduct gate_up(sum_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  gate_up.call.epilogue = BatchProduct::Epilogue::kSwiglu;
  const Tensor gated_TF = multiply(gate_up, at::empty({rows, chain.down_HF.inputs()}, options),
                                   norm_of(chain.residual_TH, added_TH, chain.post_norm_H, sum_TH));
  multiply(ChainProduct(gated_TF, chain.down_HF, chain.down_bias_H), added_TH);
  return multiply(ChainProduct(chain.residual_TH, chain.next_qkv_EH, chain.next_qkv_bias_E),
                  at::empty({rows, chain.next_qkv_EH.outputs()}, options),
                  norm_of(sum_TH, added_TH, chain.next_norm_H, chain.residual_TH));
}

}  // namespace

bool CudaDevice::has_block_chain(const BlockChain& chain) const {
  if (arithmetic() == Arithmetic::kTraining) return false;
  if (has_code_chain(chain) || has_coded_expert_chain(chain)) return true;
  const int64_t rows = chain.residual_TH.size(0);
  if (!has_batch_product(Number::kBFloat16, rows) && !has_wide_product(Number::kBFloat16, rows))
    return false;
  using Epilogue = BatchProduct::Epilogue;
  if (!is_in_chain(chain, chain.output_HC, Epilogue::kSplitK) ||
      !is_in_chain(chain, chain.gate_up_2FH, Epilogue::kSwiglu) ||
      !is_in_chain(chain, chain.down_HF, Epilogue::kSplitK) ||
      !is_in_chain(chain, chain.next_qkv_EH, Epilogue::kStore))
    return false;
  for (const Tensor* tensor :
       {&chain.attended_TC, &chain.residual_TH, &chain.output_bias_H, &chain.post_norm_H,
        &chain.gate_up_bias_2F, &chain.down_bias_H, &chain.next_norm_H, &chain.next_qkv_bias_E})
    if (!is_plain(*tensor)) return false;
  const auto is_aligned = [](int64_t size) { return size % kBatchProductInputs == 0; };
  return is_aligned(chain.output_HC.inputs()) && is_aligned(chain.output_HC.outputs()) &&
         (chain.experts != nullptr ? has_chained_experts(chain.residual_TH, *chain.experts)
                                   : is_aligned(chain.down_HF.inputs())) &&
         (!chain.next_qkv_EH.defined() || chain.next_qkv_EH.outputs() % kBatchProductOutputs == 0);
}

/// A product that only stores its results, of many rows.
Tensor CudaDevice::stored_product(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                                  cudaStream_t stream) const {
  if (!has_addition(weight_OI)) return linear(x_TI, weight_OI.without_adapters(), bias_O);
  const Tensor sum_TO = product(x_TI, weight_OI.without_adapters(), {}, /*float_result=*/true);
  if (bias_O.defined()) sum_TO.add_(bias_O);
  const ChainAddition addition(x_TI, weight_OI, stream, nullptr);
  Tensor y_TO = at::empty(sum_TO.sizes(), x_TI.options());
  LowRankUp up;
  up.h_STR = addition.call().h_TR;
  up.h_pitch = addition.call().h_pitch;
  up.rows = static_cast<int>(x_TI.size(0));
  up.outputs = static_cast<int>(weight_OI.outputs());
  up.factors = addition.call().factors;
  for (int i = 0; i < up.factors.count; ++i) up.factors.of[i].scale = 1;  // h has it
  up.y_TO = pointer(sum_TO);
  up.out_TO = y_TO.data_ptr();
  up.is_out_float = false;
  low_rank_up(Number::kBFloat16, up, stream);
  return y_TO;
}

/// With more than 64 rows the products that only store their results are cuBLASLt's, and so is one
/// that would take more than two splits to fill the multiprocessors: reducing those costs what it
/// gains.
Tensor CudaDevice::block_chain(const BlockChain& chain) const {
  if (has_code_chain(chain)) return code_chain(chain);
  if (chain.experts != nullptr) return expert_chain(chain);
  const cudaStream_t stream = stream_of(chain.residual_TH);
  const bool is_fused = fuses_sums(chain);
  if (is_narrow(chain, stream) && is_fused)
    return chain.ranks != nullptr ? narrow_chain_of_ranks(chain, stream)
                                  : narrow_chain(chain, stream);
  const int64_t rows = chain.residual_TH.size(0), hidden = chain.residual_TH.size(1);
  const bool is_wide = has_wide_product(Number::kBFloat16, rows);
  const auto options = chain.residual_TH.options();
  const auto multiply = [&](ChainProduct& product) {
    std::optional<ChainAddition> addition;
    if (!is_wide) addition = made_by(product, stream);
    if (!addition)
      addition.emplace(product.x_TI, product.weight_OI, stream, flag_of(product.weight_OI, stream));
    product.call.addition = addition->call();
    is_wide ? wide_product(product.call, stream) : batch_product(product.call, stream);
  };
  const auto splits_of = [&](const Matrix& weight_OI) {
    const auto inputs = static_cast<int>(weight_OI.inputs()),
               outputs = static_cast<int>(weight_OI.outputs());
    return is_wide ? wide_product_splits(inputs, outputs) : batch_product_splits(inputs, outputs);
  };
  // The product is added to the residual stream as the partial sums of split-K, which the norm's
  // kernel reduces; the norm is returned.
  const auto add_split_k = [&](const Tensor& x_TI, const Matrix& weight_HI, const Tensor& bias_H,
                               const Tensor& norm_H) {
    ChainProduct product(x_TI, weight_HI, {});
    const int num_splits = splits_of(weight_HI);
    const Tensor partials_STH = at::empty({num_splits, rows, hidden}, options.dtype(at::kFloat));
    product.call.epilogue = BatchProduct::Epilogue::kSplitK;
    product.call.y = partials_STH.data_ptr();
    multiply(product);
    if (chain.ranks != nullptr)
      return chain.ranks->add_norm_(chain.residual_TH, partials_STH, bias_H, norm_H, chain.eps);
    Tensor normed_TH = at::empty({rows, hidden}, options);
    add_partials_rms_norm(chain.residual_TH.data_ptr(), partials_STH.const_data_ptr<float>(),
                          num_splits, pointer(bias_H), pointer(norm_H), normed_TH.data_ptr(), rows,
                          hidden, static_cast<float>(chain.eps), stream);
    return normed_TH;
  };
  // As adapted_linear(), which is the program's and not in this library.
  const auto whole = [&](const Tensor& x_TI, const Matrix& weight_HI, const Tensor& bias_H) {
    return adds(weight_HI.adapters) ? linear_with_pairs(x_TI, weight_HI, bias_H, nullptr)
                                    : linear(x_TI, weight_HI.without_adapters(), bias_H);
  };
  const auto add_whole = [&](const Tensor& x_TI, const Matrix& weight_HI, const Tensor& bias_H,
                             const Tensor& norm_H) {
    const Tensor update_TH = whole(x_TI, weight_HI, bias_H);
    if (chain.ranks != nullptr && is_fused)
      return chain.ranks->add_norm_(chain.residual_TH, update_TH, {}, norm_H, chain.eps);
    if (chain.ranks != nullptr) chain.ranks->sum_(update_TH);
    return add_rms_norm_(chain.residual_TH, update_TH, norm_H, chain.eps);
  };

  const Tensor input_TH =
      (is_wide && !has_addition(chain.output_HC)) || !is_fused
          ? add_whole(chain.attended_TC, chain.output_HC, chain.output_bias_H, chain.post_norm_H)
          : add_split_k(chain.attended_TC, chain.output_HC, chain.output_bias_H, chain.post_norm_H);
  Tensor gated_TF = at::empty({rows, chain.down_HF.inputs()}, options);
  ChainProduct gate_up(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  gate_up.call.epilogue = BatchProduct::Epilogue::kSwiglu;
  gate_up.call.y = gated_TF.data_ptr();
  multiply(gate_up);
  if (!chain.next_norm_H.defined()) {
    const Tensor update_TH = whole(gated_TF, chain.down_HF, chain.down_bias_H);
    if (chain.ranks != nullptr) chain.ranks->sum_(update_TH);
    return update_TH;
  }
  const Tensor next_TH =
      !is_fused || (is_wide && splits_of(chain.down_HF) > 2 && !has_addition(chain.down_HF))
          ? add_whole(gated_TF, chain.down_HF, chain.down_bias_H, chain.next_norm_H)
          : add_split_k(gated_TF, chain.down_HF, chain.down_bias_H, chain.next_norm_H);
  if (is_wide) return stored_product(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E, stream);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.outputs()}, options);
  ChainProduct qkv(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E);
  qkv.call.y = heads_TE.data_ptr();
  multiply(qkv);
  return heads_TE;
}

}  // namespace slime::kernels::cuda
