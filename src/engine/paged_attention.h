#pragma once

/// The engine's side of model::Attention: keys and values live in the paged cache.

#include <vector>

#include "engine/paged_kv_cache.h"
#include "engine/state_cache.h"
#include "kernels/cpu/paged_attention.h"
#include "model/attention.h"

namespace slime::engine {

class PagedAttention final : public model::Attention {
 public:
  /// Both must outlive it.
  PagedAttention(PagedKvCache& cache, StateCache& states) : cache_(cache), states_(states) {}

  /// What the rows of the next forward pass are; rows of consecutive sequences are consecutive. `plans`:
  /// by group of layers (engine/cache_groups.h), over the same rows with the pages of each. The page
  /// tables must stay valid until the pass is over. `states`: of each sequence, none in networks without
  /// states.
  void begin_step(std::vector<kernels::PagedPlan> plans, std::vector<StateId> states);

  /// Throws BugError for float16 and float64 activations.
  Tensor attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                const Tensor& rotary_row_T) override;
  /// One key head, [rotating key; latent], that all query heads share.
  Tensor attend_latent(const model::LatentLayer& layer, const model::LatentInput& in,
                       const Tensor& rotary_row_T) override;
  /// Single tokens advance their states one by one, longer runs chunk by chunk.
  Tensor attend_delta(const model::DeltaLayer& layer, const kernels::DeltaTokens& in) override;

 private:
  Tensor attend_chosen(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                       const Tensor& rotary_row_T, const std::vector<const uint8_t*>& chosen_T);
  /// Stores the indexer's keys of the step's rows, and chooses tokens for each row.
  void choose(const model::LatentLayer& layer, const model::IndexInput& index);

  PagedKvCache& cache_;
  StateCache& states_;
  /// Of the step's rows, by the last layer with an indexer: a byte for each earlier token, or nothing
  /// where all are looked at.
  std::vector<std::vector<uint8_t>> chosen_;
  std::vector<kernels::PagedPlan> plans_;
  std::vector<StateId> state_of_sequence_;
  std::vector<float> query_scratch_;
};

}  // namespace slime::engine
