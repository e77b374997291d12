#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/batch_product.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/rows.h"

namespace slime::kernels::cuda {
namespace {

/// A bfloat16 matrix or vector that kernels read as it lies, or none.
bool is_plain(const Tensor& tensor) {
  return !tensor.defined() || (tensor.scalar_type() == at::kBFloat16 && tensor.is_contiguous() &&
                               reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0);
}

const void* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

ChainLink link_of(const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O, Tensor& y) {
  ChainLink link;
  link.x_TI = pointer(x_TI);
  link.weight_OI = pointer(weight_OI);
  link.bias_O = pointer(bias_O);
  link.inputs = static_cast<int>(weight_OI.size(1));
  link.outputs = static_cast<int>(weight_OI.size(0));
  link.y = y.data_ptr();
  return link;
}

}  // namespace

/// As one kernel for up to 16 rows (kernels/cuda/product_chain.h), as a kernel for each product for
/// up to 64 (kernels/cuda/batch_product.h).
///
/// Not for float16: numbers of the residual stream times the weights of a norm, before they are
/// divided by their root mean square, can be beyond its range.
bool CudaDevice::has_block_chain(const BlockChain& chain) const {
  const int64_t rows = chain.residual_TH.size(0);
  if (!has_chain(Number::kBFloat16, rows) && !has_batch_product(Number::kBFloat16, rows))
    return false;
  for (const Tensor& tensor :
       {chain.attended_TC, chain.residual_TH, chain.output_HC, chain.output_bias_H,
        chain.post_norm_H, chain.gate_up_2FH, chain.gate_up_bias_2F, chain.down_HF,
        chain.down_bias_H, chain.next_norm_H, chain.next_qkv_EH, chain.next_qkv_bias_E})
    if (!is_plain(tensor)) return false;
  return chain.output_HC.size(1) % kChainInputs == 0 &&
         chain.output_HC.size(0) % kChainInputs == 0 && chain.down_HF.size(1) % kChainInputs == 0;
}

Tensor CudaDevice::block_chain(const BlockChain& chain) const {
  return has_chain(Number::kBFloat16, chain.residual_TH.size(0)) ? chain_in_one_kernel(chain)
                                                                 : chain_of_kernels(chain);
}

/// Norms add up what the products leave in parts.
Tensor CudaDevice::chain_of_kernels(const BlockChain& chain) const {
  const cudaStream_t stream = stream_of(chain.residual_TH);
  const auto rows = static_cast<int>(chain.residual_TH.size(0));
  const int64_t hidden = chain.residual_TH.size(1);
  const auto options = chain.residual_TH.options();
  const auto call_of = [&](const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O) {
    BatchProduct call;
    call.x_TI = pointer(x_TI);
    call.weight_OI = pointer(weight_OI);
    call.bias_O = pointer(bias_O);
    call.rows = rows;
    call.inputs = static_cast<int>(weight_OI.size(1));
    call.outputs = static_cast<int>(weight_OI.size(0));
    return call;
  };
  /// The product goes into the residual stream; its norm is returned.
  const auto add_product = [&](const Tensor& x_TI, const Tensor& weight_HI, const Tensor& bias_H,
                               const Tensor& norm_H) {
    BatchProduct call = call_of(x_TI, weight_HI, {});
    const int num_parts = batch_product_parts(call.inputs, call.outputs);
    const Tensor parts_PTH = at::empty({num_parts, rows, hidden}, options.dtype(at::kFloat));
    call.ending = BatchProduct::Ending::kParts;
    call.y = parts_PTH.data_ptr();
    batch_product(call, stream);
    Tensor normed_TH = at::empty({rows, hidden}, options);
    add_parts_rms_norm(Number::kBFloat16, chain.residual_TH.data_ptr(),
                       parts_PTH.const_data_ptr<float>(), num_parts, pointer(bias_H),
                       pointer(norm_H), normed_TH.data_ptr(), rows, hidden,
                       static_cast<float>(chain.eps), stream);
    return normed_TH;
  };

  const Tensor input_TH =
      add_product(chain.attended_TC, chain.output_HC, chain.output_bias_H, chain.post_norm_H);
  Tensor gated_TF = at::empty({rows, chain.down_HF.size(1)}, options);
  BatchProduct gate_up = call_of(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F);
  gate_up.ending = BatchProduct::Ending::kSwiglu;
  gate_up.y = gated_TF.data_ptr();
  batch_product(gate_up, stream);
  if (!chain.next_norm_H.defined()) return linear(gated_TF, chain.down_HF, chain.down_bias_H);
  const Tensor next_TH = add_product(gated_TF, chain.down_HF, chain.down_bias_H, chain.next_norm_H);
  Tensor heads_TE = at::empty({rows, chain.next_qkv_EH.size(0)}, options);
  BatchProduct qkv = call_of(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E);
  qkv.y = heads_TE.data_ptr();
  batch_product(qkv, stream);
  return heads_TE;
}

Tensor CudaDevice::chain_in_one_kernel(const BlockChain& chain) const {
  const cudaStream_t stream = stream_of(chain.residual_TH);
  const int64_t rows = chain.residual_TH.size(0), hidden = chain.residual_TH.size(1);
  const auto options = chain.residual_TH.options();
  const Tensor squares_2TP = at::empty({2, rows, chain_squares()}, options.dtype(at::kFloat));
  auto* first_squares = squares_2TP.data_ptr<float>();
  float* second_squares = first_squares + rows * chain_squares();
  Tensor input_TH = at::empty({rows, hidden}, options);
  Tensor gated_TF = at::empty({rows, chain.down_HF.size(1)}, options);

  ProductChain call;
  call.rows = static_cast<int>(rows);
  call.counters = chain_counters_.of(stream);
  const auto add_link = [&](ChainLink link) { call.links[call.num_links++] = link; };
  const auto adds = [&](ChainLink& link, const Tensor& norm_H, float* squares) {
    link.ending = ChainLink::Ending::kAdd;
    link.residual_TO = link.sum_TO = chain.residual_TH.data_ptr();
    link.norm_O = pointer(norm_H);
    link.squares_out_TP = squares;
  };
  const auto is_normed = [&](ChainLink& link, const float* squares) {
    link.squares_TP = squares;
    link.eps = static_cast<float>(chain.eps);
  };

  ChainLink output = link_of(chain.attended_TC, chain.output_HC, chain.output_bias_H, input_TH);
  adds(output, chain.post_norm_H, first_squares);
  add_link(output);
  ChainLink gate_up = link_of(input_TH, chain.gate_up_2FH, chain.gate_up_bias_2F, gated_TF);
  gate_up.ending = ChainLink::Ending::kSwiglu;
  is_normed(gate_up, first_squares);
  add_link(gate_up);
  // What the next block reads may not lie where blocks that are behind still read this one's.
  Tensor result = at::empty({rows, hidden}, options);
  ChainLink down = link_of(gated_TF, chain.down_HF, chain.down_bias_H, result);
  if (!chain.next_norm_H.defined()) {
    add_link(down);
    product_chain(call, stream);
    return result;
  }
  adds(down, chain.next_norm_H, second_squares);
  add_link(down);
  const Tensor next_TH = result;
  result = at::empty({rows, chain.next_qkv_EH.size(0)}, options);
  ChainLink qkv = link_of(next_TH, chain.next_qkv_EH, chain.next_qkv_bias_E, result);
  is_normed(qkv, second_squares);
  add_link(qkv);
  product_chain(call, stream);
  return result;
}

}  // namespace slime::kernels::cuda
