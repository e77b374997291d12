#pragma once

/// Attention of the trainer that has chains of blocks, as an engine's on a GPU has.

#include "core/error.h"
#include "kernels/block_chain.h"
#include "model/tree_attention.h"

namespace slime::model {

/// Attention that lets the decoder chain its blocks, by the operations of every device.
class Chaining final : public Attention, public kernels::BlockChains {
 public:
  explicit Chaining(const TokenBatch& batch) : inner_(batch) {}
  Tensor attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override {
    return inner_.attend(layer, qkv_TE, positions_T);
  }
  Tensor attend_latent(const LatentLayer& layer, const LatentInput& in,
                       const Tensor& positions_T) override {
    return inner_.attend_latent(layer, in, positions_T);
  }
  Tensor attend_delta(const DeltaLayer& layer, const kernels::DeltaTokens& in) override {
    return inner_.attend_delta(layer, in);
  }
  const kernels::BlockChains* chains() const override { return this; }
  bool has_block_chain(const kernels::BlockChain&) const override {
    ++asked;
    return false;
  }
  Tensor block_chain(const kernels::BlockChain&) const override { throw BugError("has none"); }

  mutable int asked = 0;

 private:
  TreeAttention inner_;
};

}  // namespace slime::model
