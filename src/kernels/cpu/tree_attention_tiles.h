#pragma once

/// Block-wise attention over segments as tree_attention_avx2.h has it, with its products in tiles:
/// bfloat16 factors, float32 sums and statistics.

#include <vector>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/tile_ops.h"
#include "kernels/device.h"

namespace slime::kernels::cpu {

void tree_attention_tiles(const TileOps& ops, const AttentionRows& row_ops,
                          const at::BFloat16* heads, const std::vector<Segment>& segments,
                          const RotaryShape& shape, const TreeAttentionShape& attention,
                          at::BFloat16* y, float* logsumexp);

/// Writes all of dheads.
void tree_attention_backward_tiles(const TileOps& ops, const AttentionRows& row_ops,
                                   const at::BFloat16* dy, const at::BFloat16* y,
                                   const at::BFloat16* heads, const float* logsumexp,
                                   const std::vector<Segment>& segments, const RotaryShape& shape,
                                   const TreeAttentionShape& attention, float* dheads);

}  // namespace slime::kernels::cpu
