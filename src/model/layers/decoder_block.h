#pragma once

/// One block of a pre-norm decoder: norm, attention, norm, gated feed-forward, with the residual
/// additions fused into the norms.
///
/// Dimensions: T tokens, H hidden, N query heads, K key-value heads, D head size, F feed-forward
/// width.

#include "kernels/block_chain.h"
#include "kernels/param.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/layers/rotary_table.h"
#include "model/weights_builder.h"

namespace slime::model {

/// The residual stream between blocks: its value is residual + update. The addition waits for the
/// next norm, which reads the sum anyway.
struct Stream {
  Tensor residual_TH;
  Tensor update_TH;  // undefined before the first block
};

class DecoderBlock {
 public:
  /// Registers the block's weights under "model.layers.INDEX.". `mesh` outlives the block.
  DecoderBlock(const ModelConfig& config, int index, const comm::Mesh& mesh,
               const RotaryTable& rotary, Weights::Builder& builder);
  DecoderBlock(const DecoderBlock&) = delete;  // the builder points at the parameters
  DecoderBlock& operator=(const DecoderBlock&) = delete;

  /// Norms and the product of gate and up are not kept for the backward pass but made again.
  void set_selective(bool on) { is_selective_ = on; }

  Stream forward(Stream in, const Tensor& positions_T, Attention& attention);
  /// The same from the sum residual + update on. Without grad mode `sum_TH` is overwritten.
  Stream forward_from_sum(Tensor sum_TH, const Tensor& positions_T, Attention& attention);

  /// The same in pieces, without gradients: the heads [T, E] of the residual stream, then the
  /// attention, then what lies between it and that of the block after this one (null: none).
  Tensor heads(const Tensor& sum_TH) const;
  const AttentionLayer& attention() const { return attention_; }
  kernels::BlockChain chain_to(const DecoderBlock* next, const Tensor& attended_TC,
                               const Tensor& residual_TH) const;

 private:
  /// From the residual stream and the projected heads on.
  Stream finish(const Tensor& sum_TH, const Tensor& qkv_TE, const Tensor& positions_T,
                Attention& attention);
  bool makes_again() const;
  /// A product whose inputs are sliced over the tensor-parallel ranks: the sum of their products.
  Tensor summed_linear(const Tensor& x, const kernels::Param& weight,
                       const kernels::Param& bias) const;

  comm::Group& tp_;
  double eps_;
  bool is_selective_ = false;
  AttentionLayer attention_;
  kernels::Param input_norm_;    // [H]
  kernels::Param qkv_;           // [(N + 2 K) D, H]
  kernels::Param qkv_bias_;      // [(N + 2 K) D], may be undefined
  kernels::Param output_;        // [H, N D]
  kernels::Param output_bias_;   // [H], may be undefined
  kernels::Param post_norm_;     // [H]
  kernels::Param gate_up_;       // [2 F, H]
  kernels::Param gate_up_bias_;  // [2 F], may be undefined
  kernels::Param down_;          // [H, F]
  kernels::Param down_bias_;     // [H], may be undefined
};

}  // namespace slime::model
