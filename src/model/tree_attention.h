#pragma once

/// The trainer's attention: over the segments of one TokenBatch (model/token_batch.h),
/// differentiable.

#include <vector>

#include "model/attention.h"
#include "model/token_batch.h"

namespace slime::model {

class TreeAttention final : public Attention {
 public:
  /// Checks that the segments cover [0, T) in order and that parents come first. With recompute it
  /// must live until the backward of the batch is done.
  explicit TreeAttention(const TokenBatch& batch);

  Tensor attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override;
  Tensor attend_latent(const LatentLayer& layer, const LatentInput& in,
                       const Tensor& positions_T) override;

 private:
  std::vector<Segment> segments_;
};

}  // namespace slime::model
