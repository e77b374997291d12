#pragma once

/// An optional fast path of decode: everything between the attention of one block and that of the
/// next as one call (kernels/block_chain.h), where layers and norms have the form that it knows.
/// DecoderBlock::forward() is the structure; this computes the same.

#include <memory>
#include <span>

#include "kernels/rank_collectives.h"
#include "model/layers/decoder_block.h"
#include "model/layers/tensor_parallel.h"
#include "model/router_pass.h"
#include "model/token_batch.h"

namespace slime::model {

using Blocks = std::span<const std::unique_ptr<DecoderBlock>>;

/// Norms before the layers and not after them, mixers with products, gated feed-forward layers or
/// nothing but routed experts, whose rows ranks do not divide. Ranks have all rows of the stream.
bool has_chain(Blocks blocks, const TensorParallel& tp);

/// The ranks that share the layers.
struct ChainRanks {
  const kernels::RankCollectives* sum = nullptr;  // rank_collectives_of()
  bool adds_biases = true;                        // this rank adds those of sums
};

/// All blocks, for has_chain() and without gradients, where is_free(batch.routers). `residual_TH` is
/// overwritten. `wants_some`: of the wanted rows alone from the last block's attention on.
Stream chained(Blocks blocks, const Tensor& residual_TH, const TokenBatch& batch,
               Attention& attention, bool wants_some, double eps, const ChainRanks& ranks);

}  // namespace slime::model
