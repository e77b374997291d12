#pragma once

/// An optional fast path of decode: everything between the attention of one block and that of the
/// next as one call (kernels/block_chain.h), where layers and norms have the form that it knows.
/// DecoderBlock::forward() is the structure; this computes the same.

#include <memory>
#include <span>

#include "model/layers/decoder_block.h"

namespace slime::model {

using Blocks = std::span<const std::unique_ptr<DecoderBlock>>;

/// Norms before the layers and not after them, mixers with products, gated feed-forward layers or
/// nothing but routed experts, and one tensor-parallel rank.
bool has_chain(Blocks blocks);

/// All blocks, for has_chain() and without gradients. `residual_TH` is overwritten.
Stream chained(Blocks blocks, const Tensor& residual_TH, const Tensor& positions_T,
               Attention& attention, double eps);

}  // namespace slime::model
