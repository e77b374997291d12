#include "model/layers/decoder_block.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>

#include "kernels/fused_linear.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

DecoderBlock::DecoderBlock(const ModelConfig& config, int index, const comm::Mesh& mesh,
                           const RotaryTable& rotary, Weights::Builder& builder)
    : tp_(mesh.tp()), eps_(config.norm_eps) {
  const int64_t hidden = config.hidden_size, dim = config.head_dim;
  const int64_t q = config.num_heads * dim, kv = config.num_kv_heads * dim,
                width = config.intermediate_size;
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const auto name = [&](std::string_view tail) { return prefix + std::string(tail); };
  const auto cut = [&](int dimension, int64_t size) {
    return tensor_parallel_slice(mesh, dimension, size);
  };
  // Heads stay whole: a rank holds num_heads / tp of them.
  const auto head_cut = [&](int dimension, int64_t heads) {
    Slice slice = cut(dimension, heads);
    slice.begin *= dim;
    slice.end *= dim;
    return slice;
  };
  const Slice q_rows = head_cut(0, config.num_heads), kv_rows = head_cut(0, config.num_kv_heads);
  // Whole on every rank, and each sees some of the heads, or (biases of sums) one rank adds it.
  const bool is_partial = !tp_.is_alone();

  builder.add(input_norm_, {{name("input_layernorm.weight"), {hidden}, {}}});
  builder.add(qkv_, {{name("self_attn.q_proj.weight"), {q, hidden}, q_rows},
                     {name("self_attn.k_proj.weight"), {kv, hidden}, kv_rows},
                     {name("self_attn.v_proj.weight"), {kv, hidden}, kv_rows}});
  if (config.has_qkv_bias) {
    builder.add(qkv_bias_, {{name("self_attn.q_proj.bias"), {q}, q_rows},
                            {name("self_attn.k_proj.bias"), {kv}, kv_rows},
                            {name("self_attn.v_proj.bias"), {kv}, kv_rows}});
  }
  if (config.has_qk_norm) {
    builder.add(attention_.q_norm, {{name("self_attn.q_norm.weight"), {dim}, {}, is_partial}});
    builder.add(attention_.k_norm, {{name("self_attn.k_norm.weight"), {dim}, {}, is_partial}});
  }
  builder.add(output_,
              {{name("self_attn.o_proj.weight"), {hidden, q}, head_cut(1, config.num_heads)}});
  if (config.has_output_bias)
    builder.add(output_bias_, {{name("self_attn.o_proj.bias"), {hidden}, {}, is_partial}});
  builder.add(post_norm_, {{name("post_attention_layernorm.weight"), {hidden}, {}}});
  builder.add(gate_up_, {{name("mlp.gate_proj.weight"), {width, hidden}, cut(0, width)},
                         {name("mlp.up_proj.weight"), {width, hidden}, cut(0, width)}});
  if (config.has_mlp_bias) {
    builder.add(gate_up_bias_, {{name("mlp.gate_proj.bias"), {width}, cut(0, width)},
                                {name("mlp.up_proj.bias"), {width}, cut(0, width)}});
  }
  builder.add(down_, {{name("mlp.down_proj.weight"), {hidden, width}, cut(1, width)}});
  if (config.has_mlp_bias)
    builder.add(down_bias_, {{name("mlp.down_proj.bias"), {hidden}, {}, is_partial}});

  attention_.index = index;
  attention_.num_heads = config.num_heads / tp_.size();
  attention_.num_kv_heads = config.num_kv_heads / tp_.size();
  attention_.head_dim = dim;
  attention_.scale = 1 / std::sqrt(static_cast<double>(dim));
  attention_.window = config.window[static_cast<size_t>(index)];
  attention_.norm_eps = config.norm_eps;
  attention_.cos_PR = rotary.cos_PR;
  attention_.sin_PR = rotary.sin_PR;
}

bool DecoderBlock::makes_again() const { return is_selective_ && at::GradMode::is_enabled(); }

Stream DecoderBlock::forward(Stream in, const Tensor& positions_T, Attention& attention) {
  if (!in.update_TH.defined())
    return forward_from_sum(std::move(in.residual_TH), positions_T, attention);
  if (makes_again()) {
    const auto [sum_TH, qkv_TE] =
        kernels::add_norm_linear(in.residual_TH, in.update_TH, input_norm_, eps_, qkv_, qkv_bias_);
    return finish(sum_TH, qkv_TE, positions_T, attention);
  }
  const auto [sum_TH, normed_TH] =
      kernels::add_rms_norm(in.residual_TH, in.update_TH, input_norm_, eps_);
  return finish(sum_TH, kernels::linear(sum_gradient(normed_TH, tp_), qkv_, qkv_bias_), positions_T,
                attention);
}

Stream DecoderBlock::forward_from_sum(Tensor sum_TH, const Tensor& positions_T,
                                      Attention& attention) {
  const Tensor normed_TH = kernels::rms_norm(sum_TH, input_norm_, eps_);
  return finish(sum_TH, kernels::linear(sum_gradient(normed_TH, tp_), qkv_, qkv_bias_), positions_T,
                attention);
}

Tensor DecoderBlock::summed_linear(const Tensor& x, const kernels::Param& weight,
                                   const kernels::Param& bias) const {
  const bool adds_bias = tp_.rank() == 0;
  return sum_over_ranks(kernels::linear(x, weight, adds_bias ? bias : kernels::Param{}), tp_);
}

Tensor DecoderBlock::heads(const Tensor& sum_TH) const {
  return kernels::linear(kernels::rms_norm(sum_TH, input_norm_, eps_), qkv_, qkv_bias_);
}

kernels::BlockChain DecoderBlock::chain_to(const DecoderBlock* next, const Tensor& attended_TC,
                                           const Tensor& residual_TH) const {
  kernels::BlockChain chain;
  chain.attended_TC = attended_TC;
  chain.residual_TH = residual_TH;
  chain.output_HC = output_.value;
  chain.output_bias_H = output_bias_.value;
  chain.post_norm_H = post_norm_.value;
  chain.gate_up_2FH = gate_up_.value;
  chain.gate_up_bias_2F = gate_up_bias_.value;
  chain.down_HF = down_.value;
  chain.down_bias_H = down_bias_.value;
  if (next != nullptr) {
    chain.next_norm_H = next->input_norm_.value;
    chain.next_qkv_EH = next->qkv_.value;
    chain.next_qkv_bias_E = next->qkv_bias_.value;
  }
  chain.eps = eps_;
  return chain;
}

Stream DecoderBlock::finish(const Tensor& sum_TH, const Tensor& qkv_TE, const Tensor& positions_T,
                            Attention& attention) {
  const Tensor attended_TC = attention.attend(attention_, qkv_TE, positions_T);
  const Tensor output_TH = summed_linear(attended_TC, output_, output_bias_);
  if (makes_again()) {
    const auto [residual_TH, gate_up_T2F] =
        kernels::add_norm_linear(sum_TH, output_TH, post_norm_, eps_, gate_up_, gate_up_bias_);
    return {residual_TH, kernels::swiglu_linear(gate_up_T2F, down_, down_bias_)};
  }
  const auto [residual_TH, input_TH] = kernels::add_rms_norm(sum_TH, output_TH, post_norm_, eps_);
  const Tensor gated_TF =
      kernels::swiglu(kernels::linear(sum_gradient(input_TH, tp_), gate_up_, gate_up_bias_));
  return {residual_TH, summed_linear(gated_TF, down_, down_bias_)};
}

}  // namespace slime::model
