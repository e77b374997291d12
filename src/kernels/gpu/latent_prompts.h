#pragma once

/// Kernel choice for the rows of a step with prompts in latent attention (MLA). Prompts of many new
/// rows are attended in the expanded form, between packed rows (cuDNN's kernel): a pair of tokens
/// costs a third of the operations there. All tokens of such a prompt are gathered from their pages
/// and expanded once a layer. Other rows are attended in the absorbed form, where nothing has to be
/// gathered.

#include <span>
#include <vector>

#include "kernels/gpu/packed_prompts.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels {

inline constexpr int64_t kLeastExpandedRows = 256;

/// Marks the sequences that are taken (PagedSpan::is_packed). Contexts are all of their pages; keys of both
/// levels lie among the gathered rows.
PackedPlan plan_expanded(std::span<PagedSpan> sequences);

/// A unit for each row of the other sequences, those that see the most keys first. A tile is one row with
/// all heads: UnitPlan::tile_U is the number of the row within its sequence.
UnitPlan plan_absorbed(std::span<const PagedSpan> sequences);

}  // namespace slime::kernels
