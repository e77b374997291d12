#include "model/layers/block_chain.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/adapters.h"
#include "kernels/block_chain.h"
#include "kernels/device.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/trace.h"

namespace slime::model {
namespace {

bool is_before_only(const DecoderBlock::Norms& norms) {
  return norms.before.defined() && !norms.after.defined();
}

/// From the attention of `block` to that of `next`, or to the end where that is null.
kernels::BlockChain between(const DecoderBlock& block, const DecoderBlock* next,
                            const Tensor& attended_TC, const Tensor& residual_TH, double eps,
                            const ChainRanks& ranks) {
  const Product& output = block.mixer().products()->last;
  kernels::BlockChain chain;
  chain.attended_TC = attended_TC;
  chain.residual_TH = residual_TH;
  chain.output_HC = output.weight_OI.matrix;
  if (ranks.adds_biases) chain.output_bias_H = output.bias_O.value;
  chain.post_norm_H = block.feed_forward_norms().before.value;
  if (const Products* gated = block.feed_forward().gated_products()) {
    chain.gate_up_2FH = gated->first.weight_OI.matrix;
    chain.gate_up_bias_2F = gated->first.bias_O.value;
    chain.down_HF = gated->last.weight_OI.matrix;
    if (ranks.adds_biases) chain.down_bias_H = gated->last.bias_O.value;
  }
  if (next != nullptr) {
    const Product& projection = next->mixer().products()->first;
    chain.next_norm_H = next->mixer_norms().before.value;
    chain.next_qkv_EH = projection.weight_OI.matrix;
    chain.next_qkv_bias_E = projection.bias_O.value;
  }
  chain.eps = eps;
  chain.ranks = ranks.sum;
  return chain;
}

/// The same from the layers themselves, where no kernel has all of it.
Tensor layer_by_layer(const DecoderBlock& block, const kernels::BlockChain& chain,
                      RouterPass* routers) {
  const kernels::Device& device = kernels::kernels_for(chain.residual_TH);
  const auto add_norm = [&](const Tensor& update_TH, const Tensor& weight_H) {
    return device.add_rms_norm_(chain.residual_TH, update_TH, weight_H, chain.eps);
  };
  const Tensor output_TH =
      kernels::adapted_linear(chain.attended_TC, chain.output_HC, chain.output_bias_H);
  if (chain.ranks != nullptr) chain.ranks->sum_(output_TH);
  const Tensor input_TH = add_norm(output_TH, chain.post_norm_H);
  const Tensor update_TH = block.feed_forward().infer(input_TH, routers);
  if (!chain.next_norm_H.defined()) return update_TH;
  return kernels::adapted_linear(add_norm(update_TH, chain.next_norm_H), chain.next_qkv_EH,
                                 chain.next_qkv_bias_E);
}

}  // namespace

bool has_chain(Blocks blocks, const TensorParallel& tp) {
  if (tp.cuts_rows) return false;
  return std::ranges::all_of(blocks, [&](const std::unique_ptr<DecoderBlock>& block) {
    return is_before_only(block->mixer_norms()) && is_before_only(block->feed_forward_norms()) &&
           block->mixer().products() != nullptr &&
           (block->feed_forward().gated_products() != nullptr ||
            block->feed_forward().routed_experts(nullptr).has_value());
  });
}

Stream chained(Blocks blocks, const Tensor& residual_TH, const TokenBatch& batch,
               Attention& attention, bool wants_some, double eps, const ChainRanks& ranks) {
  Tensor stream_TH = residual_TH;
  const DecoderBlock& first = *blocks.front();
  const Product& projection = first.mixer().products()->first;
  Tensor next_TE = kernels::linear(kernels::rms_norm(residual_TH, first.mixer_norms().before, eps),
                                   projection.weight_OI, projection.bias_O);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool is_last = i + 1 == blocks.size();
    Tensor attended_TC = blocks[i]->mixer().mix(next_TE, batch.rotary_row_T, attention);
    if (is_last && wants_some) {
      stream_TH = stream_TH.index_select(0, batch.wanted_R);
      if (stream_TH.size(0) == 0) return {stream_TH, {}};
      attended_TC = attended_TC.index_select(0, batch.wanted_R);
    }
    const kernels::TraceRange range("block_chain");
    kernels::BlockChain chain = between(*blocks[i], is_last ? nullptr : blocks[i + 1].get(),
                                        attended_TC, stream_TH, eps, ranks);
    const auto experts = blocks[i]->feed_forward().routed_experts(batch.routers);
    if (experts) chain.experts = &*experts;
    const bool is_dense = blocks[i]->feed_forward().gated_products() != nullptr;
    // Experts with adapters are no part of a chain.
    const bool has_all = is_dense || (experts && attention.chains()->has_block_chain(chain));
    next_TE = has_all ? kernels::block_chain(attention.chains(), chain)
                      : layer_by_layer(*blocks[i], chain, batch.routers);
  }
  return {stream_TH, next_TE};
}

}  // namespace slime::model
