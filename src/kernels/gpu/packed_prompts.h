#pragma once

/// Prompts of a step that use attention between packed rows (cuDNN's kernel for this GPU) instead
/// of tiles over pages, and their row ranges.
///
/// New rows of a prompt lie in a row already: they attend to each other, causal. Tokens of earlier
/// steps are gathered from their pages once a layer and attended without a mask; the softmax over
/// both is made of the two (logsumexp).

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/gpu/attention_levels.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels {

/// Prompts with fewer new rows go to tiles: little is won, and each shape class costs a plan.
inline constexpr int64_t kLeastPackedRows = 1024;
/// Rows that are gathered at most, of all prompts of a step: 0.5 GB at 8 key-value heads of 128.
inline constexpr int64_t kMostGatheredRows = int64_t{1} << 17;

/// A launch of it; empty without pairs in `own`.
struct PackedLaunch {
  AttentionLevel own;      // new rows of each prompt against themselves
  AttentionLevel earlier;  // the same rows against rows of the gathered pages
  Tensor earlier_pages;    // int32 [P]; undefined where `earlier` has no pairs
};

struct PackedPlan {
  AttentionLevel own, earlier;
  struct Context {
    int64_t sequence = 0;
    int64_t num_pages = 0;  // its first pages, which hold earlier tokens
  };
  std::vector<Context> contexts;  // gathered in this order
};

/// Marks the sequences that are taken (PagedSpan::is_packed).
PackedPlan plan_packed(std::span<PagedSpan> sequences);

}  // namespace slime::kernels
