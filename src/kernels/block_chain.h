#pragma once

/// The products between the attention of one decoder block and that of the next, in one call:
/// decode of a few sequences gains from what lies between them (docs/decisions/0050-cuda.md).
///
/// Dimensions: T tokens, C = N D attended numbers, H hidden, F feed-forward width, E heads.

#include "core/tensor.h"

namespace slime::kernels {

struct BlockChain {
  Tensor attended_TC;
  Tensor residual_TH;  // overwritten: the residual stream after the block
  Tensor output_HC, output_bias_H;
  Tensor post_norm_H;
  Tensor gate_up_2FH, gate_up_bias_2F;  // gates, then ups
  Tensor down_HF, down_bias_H;
  // Of the next block; undefined after the last one.
  Tensor next_norm_H, next_qkv_EH, next_qkv_bias_E;
  double eps = 0;
};

/// The same from operations of kernels::Device, on any device. Returns the next block's heads
/// [T, E]; after the last block what is yet to be added to the residual stream [T, H].
Tensor block_chain_by_parts(const BlockChain& chain);

/// A kernels::Device that has kernels of its own for it implements this as well.
class BlockChains {
 public:
  virtual ~BlockChains() = default;
  /// False where the kernels do not reach (shapes, precisions, rows) or are not the faster way.
  virtual bool has_block_chain(const BlockChain& chain) const = 0;
  /// As block_chain_by_parts().
  virtual Tensor block_chain(const BlockChain& chain) const = 0;
};

/// By `chains` where they have it, by parts otherwise. `chains` may be null.
Tensor block_chain(const BlockChains* chains, const BlockChain& chain);

/// Of the device that this tensor is on; null where it has none.
const BlockChains* block_chains_for(const Tensor& tensor);

}  // namespace slime::kernels
