#include "model/tree_attention.h"

#include "core/error.h"
#include "kernels/rotary.h"
#include "kernels/tree_attention.h"

namespace slime::model {

TreeAttention::TreeAttention(const TokenBatch& batch) : segments_(batch.segments) {
  int64_t next = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    check(segment.begin == next && segment.end > segment.begin,
          "segments cover the batch in order and are not empty");
    check(segment.parent >= -1 && segment.parent < static_cast<int64_t>(i),
          "a segment's parent comes before it");
    next = segment.end;
  }
  check(next == batch.num_tokens(), "segments cover the batch");
}

Tensor TreeAttention::attend(const AttentionLayer& layer, const Tensor& qkv_TE,
                             const Tensor& positions_T) {
  const kernels::RotaryShape heads{layer.num_heads, layer.num_kv_heads, layer.head_dim,
                                   layer.norm_eps};
  const Tensor heads_TE = kernels::norm_rotate(qkv_TE, positions_T, layer.q_norm, layer.k_norm,
                                               layer.cos_PR, layer.sin_PR, heads);
  return kernels::tree_attention(heads_TE, segments_, heads, {layer.scale, layer.window});
}

}  // namespace slime::model
