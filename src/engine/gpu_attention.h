#pragma once

/// Attention of a step over keys and values in pages, on a GPU.

#include <vector>

#include "core/tensor.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"

namespace slime::engine {

class GpuAttention final : public model::Attention {
 public:
  /// keys and values: [layers, pages, K, 16, D]; values undefined where they are a part of the keys.
  GpuAttention(const kernels::Gpu& gpu, const Tensor& keys, const Tensor& values);

  void begin_step(const kernels::PagedBatch& batch) { batch_ = batch; }
  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override;
  Tensor attend_projected_latent(const model::LatentLayer& layer, const model::LatentProjection& in,
                                 const Tensor& positions_T) override;
  const kernels::BlockChains* chains() const override { return chains_; }

 private:
  const kernels::Gpu& gpu_;
  const kernels::BlockChains* chains_;
  std::vector<Tensor> keys_, values_;  // per layer
  kernels::PagedBatch batch_;
};

}  // namespace slime::engine
