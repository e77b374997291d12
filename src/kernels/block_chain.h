#pragma once

/// The matrix products between the attention of one transformer layer and that of the next, with
/// the norms and activation between them, in one call: fused kernels make decode of a few sequences
/// faster (docs/how/cuda.md). "Block" here means a decoder block, a transformer layer.
///
/// Dimensions: T tokens, C = N D attended numbers, H hidden, F feed-forward width, E heads.

#include "core/tensor.h"
#include "kernels/matrix.h"
#include "kernels/rank_collectives.h"
#include "kernels/routed_experts.h"

namespace slime::kernels {

struct BlockChain {
  Tensor attended_TC;
  Tensor residual_TH;  // overwritten: the residual stream after the block
  Matrix output_HC;
  Tensor output_bias_H;
  Tensor post_norm_H;
  Matrix gate_up_2FH;  // gates, then ups
  Tensor gate_up_bias_2F;
  Matrix down_HF;
  Tensor down_bias_H;
  const RoutedExperts* experts = nullptr;  // instead of gate_up and down; no unfused form
  // Of the next block; undefined after the last one.
  Tensor next_norm_H;
  Matrix next_qkv_EH;
  Tensor next_qkv_bias_E;
  double eps = 0;
  /// Each of several tensor-parallel ranks has a part of what the output and down products give; null:
  /// this one has all of it. Biases of sums are defined on one rank.
  const RankCollectives* ranks = nullptr;
};

/// From single operations of kernels::Device, on any device. Returns the next block's heads [T, E];
/// after the last block what is yet to be added to the residual stream [T, H], of all ranks.
Tensor unfused_block_chain(const BlockChain& chain);

/// Implemented by a kernels::Device with fused kernels.
class BlockChains {
 public:
  virtual ~BlockChains() = default;
  /// False where the kernels do not reach (shapes, precisions, rows) or are not the faster way.
  virtual bool has_block_chain(const BlockChain& chain) const = 0;
  /// As unfused_block_chain().
  virtual Tensor block_chain(const BlockChain& chain) const = 0;
};

/// Fused by `chains` where they have it, unfused otherwise. `chains` may be null.
Tensor block_chain(const BlockChains* chains, const BlockChain& chain);

/// Of the device that this tensor is on; null where it has none.
const BlockChains* block_chains_for(const Tensor& tensor);

}  // namespace slime::kernels
