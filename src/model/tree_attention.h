#pragma once

/// The trainer's attention: over the segments of one TokenBatch (model/token_batch.h),
/// differentiable. Context-parallel ranks have some of its rows each (model/context_rows.h): they
/// gather keys and values of a layer, and in the backward sum their gradients at their owners.

#include <map>
#include <optional>
#include <vector>

#include "kernels/delta_plan.h"
#include "kernels/tree_attention.h"
#include "model/attention.h"
#include "model/context_rows.h"
#include "model/layers/row_shares.h"
#include "model/sparse_attention.h"

namespace slime::model {

class TreeAttention final : public Attention {
 public:
  /// Checks that the segments cover [0, T) in order and that parents come first. With recompute it
  /// must live until the backward of the batch is done.
  explicit TreeAttention(const TokenBatch& batch);
  /// Over the rows of the rank, which outlive it.
  explicit TreeAttention(const ContextRows& rows) : rows_(rows) {}

  Tensor attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& positions_T) override;
  Tensor attend_latent(const LatentLayer& layer, const LatentInput& in,
                       const Tensor& positions_T) override;
  /// States go from the end of a segment to the beginnings of those that continue it.
  Tensor attend_delta(const DeltaLayer& layer, const kernels::DeltaTokens& in) override;

  /// From now on with the bits of the engine's attention (TreeAttentionShape::in_pages; latents
  /// absorbed). Gradients are those of the usual forms. Of one rank, in networks without delta nets.
  void attend_in_pages() { in_pages_ = true; }

  /// From now on gradients are added in one order (TreeAttentionShape::ordered_backward).
  void order_backward() { ordered_backward_ = true; }

  /// Of the layer's indexer; null where nothing was chosen or it is not kept.
  const TokenChoice* choice_of(int layer) const;

 private:
  Tensor attended(const Tensor& heads_LE, const kernels::RotaryShape& heads,
                  const kernels::TreeAttentionShape& shape, const kernels::Param& sinks) const;

  Tensor attend_expanded(const LatentLayer& layer, const LatentInput& in,
                         const Tensor& positions_T);
  /// With the engine's form of latent attention, in its pages. Without gradients.
  Tensor absorbed(const LatentLayer& layer, const LatentInput& in, const Tensor& positions_T) const;

  const TokenChoice& chosen(const LatentLayer& layer, const LatentInput& in);
  /// Keys and values are gathered where ranks share the rows.
  Tensor attended_sparsely(const LatentLayer& layer, const TokenChoice& choice,
                           const Tensor& query_LND, const Tensor& key_LND,
                           const Tensor& value_LNV) const;
  /// Of the ranks' rows.
  RowShares row_shares() const;

  ContextRows rows_;
  bool in_pages_ = false;
  bool ordered_backward_ = false;
  std::optional<kernels::DeltaPlan> delta_plan_;  // made by the first layer that needs it
  /// By the layer with the indexer. Only the last one is kept, and those that other layers take:
  /// recomputation in the backward comes back to these.
  std::map<int, TokenChoice> choices_;
  int last_choice_ = -1;
};

}  // namespace slime::model
