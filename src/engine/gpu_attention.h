#pragma once

/// Attention of a step over keys and values in pages, on a GPU, and the states of its sequences.

#include <span>
#include <vector>

#include "core/tensor.h"
#include "engine/cache_groups.h"
#include "engine/gpu_input_block.h"
#include "engine/gpu_sparse_attention.h"
#include "kernels/gpu/engine_kernels.h"
#include "model/network.h"

namespace slime::engine {

class GpuAttention final : public model::Attention {
 public:
  /// keys and values: [layers of a page, pages, K, 16, D]; values undefined where they
  /// are a part of the keys. index_keys: float32 [layers with an indexer, pages, 16, D], or undefined.
  /// states_PX: float32, the states of all
  /// layers that keep one behind each other; undefined without such layers. sparse_keys: where kernels
  /// choose tokens in decode, the most that a row sees; 0: operations of LibTorch do.
  GpuAttention(const kernels::EngineKernels& gpu, std::span<const model::BlockNeeds> blocks,
               CacheGroups groups, const Tensor& keys, const Tensor& values,
               const Tensor& index_keys, const Tensor& states_PX, int64_t sparse_keys);

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
  bool wants_sparse_projections() const override { return is_sparse_decode_; }
  /// Whether steps of decode are launched alike, whatever the lengths of their sequences.
  bool has_recordable_decode() const { return !has_indexers_ || sparse_keys_ > 0; }

  /// Whether rows of decode may see new keys of others, whose drafts they verify: kernels that choose tokens
  /// score each row's own new key alone.
  bool verifies_drafts_in_decode() const { return !has_indexers_; }

 private:
  /// With the pages of the layer's group.
  const kernels::PagedBatch& batch_of(int layer) const;

  const kernels::EngineKernels& gpu_;
  const CacheGroups groups_;
  const kernels::BlockChains* chains_;
  bool has_indexers_;
  int64_t sparse_keys_;
  std::vector<Tensor> keys_, values_, index_keys_,
      states_;  // per layer; undefined where it has none
  kernels::PagedBatch batch_;
  std::vector<kernels::PagedBatch> window_batches_;
  bool is_sparse_decode_ = false;  // of this step: by kernels
  Tensor chosen_TC_;               // then, as long as layers look at the choice
  GpuSparseAttention sparse_;      // otherwise
};

}  // namespace slime::engine
