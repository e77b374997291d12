#include "model/layers/block_chain.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/block_chain.h"
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
                            const Tensor& attended_TC, const Tensor& residual_TH, double eps) {
  const Product& output = block.mixer().products()->last;
  const Products& gated = *block.feed_forward().gated_products();
  kernels::BlockChain chain;
  chain.attended_TC = attended_TC;
  chain.residual_TH = residual_TH;
  chain.output_HC = output.weight_OI.value;
  chain.output_bias_H = output.bias_O.value;
  chain.post_norm_H = block.feed_forward_norms().before.value;
  chain.gate_up_2FH = gated.first.weight_OI.value;
  chain.gate_up_bias_2F = gated.first.bias_O.value;
  chain.down_HF = gated.last.weight_OI.value;
  chain.down_bias_H = gated.last.bias_O.value;
  if (next != nullptr) {
    const Product& projection = next->mixer().products()->first;
    chain.next_norm_H = next->mixer_norms().before.value;
    chain.next_qkv_EH = projection.weight_OI.value;
    chain.next_qkv_bias_E = projection.bias_O.value;
  }
  chain.eps = eps;
  return chain;
}

}  // namespace

bool has_chain(Blocks blocks) {
  return std::ranges::all_of(blocks, [](const std::unique_ptr<DecoderBlock>& block) {
    return is_before_only(block->mixer_norms()) && is_before_only(block->feed_forward_norms()) &&
           block->mixer().products() != nullptr &&
           block->feed_forward().gated_products() != nullptr;
  });
}

Stream chained(Blocks blocks, const Tensor& residual_TH, const Tensor& positions_T,
               Attention& attention, double eps) {
  const DecoderBlock& first = *blocks.front();
  const Product& projection = first.mixer().products()->first;
  Tensor next_TE = kernels::linear(kernels::rms_norm(residual_TH, first.mixer_norms().before, eps),
                                   projection.weight_OI, projection.bias_O);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Tensor attended_TC = blocks[i]->mixer().mix(next_TE, positions_T, attention);
    const kernels::TraceRange range("block_chain");
    next_TE = kernels::block_chain(
        attention.chains(),
        between(*blocks[i], i + 1 < blocks.size() ? blocks[i + 1].get() : nullptr, attended_TC,
                residual_TH, eps));
  }
  return {residual_TH, next_TE};
}

}  // namespace slime::model
