#pragma once

/// Attention of a step over keys and values in pages, on a GPU, and the states of its sequences.

#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/cache_groups.h"
#include "engine/gpu_input_block.h"
#include "engine/gpu_sparse_attention.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"

namespace slime::engine {

class GpuAttention final : public model::Attention {
 public:
  /// keys and values: [layers of a page, pages, K, 16, D]; values undefined where they
  /// are a part of the keys. index_keys: float32 [layers with an indexer, pages, 16, D], or undefined.
  /// states_PX: float32, the states of all
  /// layers that keep one behind each other; undefined without such layers.
  GpuAttention(const kernels::Gpu& gpu, std::span<const model::BlockNeeds> blocks,
               CacheGroups groups, const Tensor& keys, const Tensor& values,
               const Tensor& index_keys, const Tensor& states_PX);

  void begin_step(const GpuStepInputs& in);
  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override;
  /// Of layers whose tokens an indexer chooses.
  Tensor attend_latent(const model::LatentLayer& layer, const model::LatentInput& in,
                       const Tensor& positions_T) override;
  Tensor attend_projected_latent(const model::LatentLayer& layer, const model::LatentProjection& in,
                                 const Tensor& positions_T) override;
  Tensor attend_delta(const model::DeltaLayer& layer, const kernels::DeltaTokens& in) override;
  const kernels::BlockChains* chains() const override { return chains_; }

 private:
  /// With the pages of the layer's group.
  const kernels::PagedBatch& batch_of(int layer) const;

  const kernels::Gpu& gpu_;
  const CacheGroups groups_;
  const kernels::BlockChains* chains_;
  bool has_indexers_;
  std::vector<Tensor> keys_, values_, index_keys_,
      states_;  // per layer; undefined where it has none
  kernels::PagedBatch batch_;
  std::vector<kernels::PagedBatch> window_batches_;
  GpuSparseAttention sparse_;
};

}  // namespace slime::engine
