#pragma once

/// The twin of attention over pages: rows at the end of a sequence against all of its keys; for tests.

#include <ATen/ATen.h>

#include "core/tensor.h"
#include "kernels/layer_shapes.h"

namespace slime::kernels {

/// The last rows of a sequence against all of its keys, in float64: queries [R, N D], keys and
/// values [K, KV, D]. The twin of cpu/reference.h computes all K rows, which takes a thousand times
/// as long.
inline Tensor attend_last_rows(const Tensor& q_RC, const Tensor& k_KVD, const Tensor& v_KVD,
                               const RotaryShape& heads, const TreeAttentionShape& attention,
                               const Tensor& sinks_N = {}) {
  const auto wide = [](const Tensor& x) { return x.to(at::kDouble); };
  const int64_t rows = q_RC.size(0), num_keys = k_KVD.size(0), dim = heads.head_dim;
  const int64_t kv = heads.num_kv_heads, group = heads.num_heads / kv;
  const Tensor q = wide(q_RC).view({rows, kv, group, dim}).permute({1, 2, 0, 3});
  const Tensor row = at::arange(num_keys - rows, num_keys).unsqueeze(1), key = at::arange(num_keys);
  Tensor hidden = key > row;
  if (attention.window > 0) hidden = hidden.logical_or(key <= row - attention.window);
  Tensor scores = at::matmul(q.reshape({kv, group * rows, dim}), wide(k_KVD).permute({1, 2, 0}))
                      .mul(attention.scale)
                      .view({kv, group, rows, num_keys});
  if (attention.cap > 0) scores = (scores / attention.cap).tanh() * attention.cap;
  scores = scores.masked_fill(hidden, -INFINITY);
  Tensor weights = scores.softmax(-1);
  if (sinks_N.defined()) {
    const Tensor sinks = wide(sinks_N).view({kv, group, 1, 1}).expand({kv, group, rows, 1});
    weights = at::cat({scores, sinks}, -1).softmax(-1).narrow(-1, 0, num_keys);
  }
  return at::matmul(weights.reshape({kv, group * rows, num_keys}), wide(v_KVD).transpose(0, 1))
      .view({kv, group, rows, dim})
      .permute({2, 0, 1, 3})
      .reshape({rows, heads.num_heads * dim});
}

}  // namespace slime::kernels
