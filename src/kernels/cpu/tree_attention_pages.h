#pragma once

/// Attention over trees of segments with the arithmetic of the engine's paged attention: keys and values
/// are copied into pages, and the queries of a segment are rows of a sequence whose pages are those of its
/// chain. So a token has the bits that the engine gave it, whatever else is in the batch
/// (kernels/cpu/paged_attention.h). Forward only: its statistics are those that the backward pass of
/// kernels/cpu/tree_attention_avx2.h and tree_attention_tiles.h take.

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/layer_shapes.h"
#include "kernels/segments.h"

namespace slime::kernels::cpu {

/// heads_TE: normed and rotated, float32 or bfloat16, contiguous. sinks_N: undefined without sinks; the
/// statistics hold their share. Needs AVX2. Rows of segments without queries are left as they are.
void tree_attention_pages(const at::Tensor& heads_TE, const std::vector<Segment>& segments,
                          const RotaryShape& shape, const TreeAttentionShape& attention,
                          const at::Tensor& sinks_N, const at::Tensor& y_TC,
                          const at::Tensor& logsumexp_TN);

/// The same of latent attention in its absorbed form (kernels/layer_kernels.h). All segments have
/// queries.
void latent_attention_pages(const at::Tensor& heads_TE, const at::Tensor& rotary_row_T,
                            const at::Tensor& cos_PR, const at::Tensor& sin_PR,
                            const std::vector<Segment>& segments, const RotaryShape& shape,
                            const TreeAttentionShape& attention, const at::Tensor& y_TC);

}  // namespace slime::kernels::cpu
