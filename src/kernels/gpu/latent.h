#pragma once

/// Latent attention of a step (model/layers/latent_attention.h) as the engine asks a GPU for it: in the
/// absorbed form. A token's row in the cache is its rotated key and its normed latent, once for all
/// heads; queries take over the product that would expand keys, and what attention returns of the
/// latents goes through the product that would expand values.
///
/// Dimensions: T rows of a step, N heads, L latent, R numbers of a head that rotate (of a pair its
/// ranks), P that do not, V of a value.

#include <vector>

#include "core/tensor.h"

namespace slime::kernels {

struct PagedBatch;

struct LatentShape {
  int64_t num_heads = 0;   // N
  int64_t rank = 0;        // L
  int64_t rotary_dim = 0;  // R
  int64_t plain_dim = 0;   // P
  int64_t value_dim = 0;   // V

  int64_t row_size() const { return rotary_dim + rank; }
};

/// A low-rank pair beside the expanding product, float32: it adds scale * B A.
struct LatentPair {
  Tensor a_RL;
  Tensor b_NER;  // [N, P + V, R]
  double scale = 0;
};

struct LatentCall {
  const PagedBatch* batch = nullptr;
  LatentShape shape;
  double scale = 1;
  // Rows of these may lie apart.
  Tensor query_TE;       // [T, N (P + R)]: of a head what does not rotate, then what does
  Tensor latent_TL;      // not normed
  Tensor rotary_key_TR;  // not rotated
  Tensor rotary_row_T;   // int64, of cos and sin
  Tensor latent_norm_L;
  double norm_eps = 0;
  Tensor expand;                  // [N (P + V), L]: of a head keys, then values
  std::vector<LatentPair> pairs;  // beside it; empty: none
  Tensor cos_PR, sin_PR;          // float32 [positions, R / 2]
  Tensor rotary_order_R;  // int64, of neighbours that rotate with each other; undefined: halves do
  Tensor rows;            // [pages, 1, kPageTokens, R + L], in the precision of the queries
  // int32 [T, C], of decode: row t looks at the first min(index + 1, C) of these places in the cache
  // (kernels/gpu/sparse.h). Undefined: at all tokens.
  Tensor chosen_TC;
};

}  // namespace slime::kernels
