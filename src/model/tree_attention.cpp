#include "model/tree_attention.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/linear.h"
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
  return kernels::tree_attention(heads_TE, segments_, heads, {layer.scale, layer.window},
                                 layer.sinks);
}

Tensor TreeAttention::attend_latent(const LatentLayer& layer, const LatentInput& in,
                                    const Tensor& positions_T) {
  const int64_t tokens = in.latent_TL.size(0), heads = layer.num_heads, rotary = layer.rotary_dim,
                size = layer.plain_dim + rotary;
  const auto flat = [&](const Tensor& x) { return x.reshape({tokens, -1}); };
  // All rotating numbers as heads of their own; the value head is not looked at.
  const Tensor rotated_TE = kernels::norm_rotate(
      at::cat({flat(in.rotary_query_TNR), in.rotary_key_TR, in.rotary_key_TR}, 1), positions_T, {},
      {}, layer.cos_PR, layer.sin_PR, {heads, 1, rotary, 0});
  const Tensor query_TNR = rotated_TE.narrow(1, 0, heads * rotary).view({tokens, heads, rotary});
  const Tensor key_TNR =
      rotated_TE.narrow(1, heads * rotary, rotary).unsqueeze(1).expand({tokens, heads, rotary});
  const Tensor expanded_TNE = kernels::linear(in.latent_TL, layer.expand).view({tokens, heads, -1});
  // Kernels have one size for keys and values: what values lack is zeros.
  const Tensor value_TND = at::constant_pad_nd(
      expanded_TNE.narrow(2, layer.plain_dim, layer.value_dim), {0, size - layer.value_dim});
  const Tensor heads_TE = at::cat(
      {flat(at::cat({query_TNR, in.plain_query_TNP}, 2)),
       flat(at::cat({key_TNR, expanded_TNE.narrow(2, 0, layer.plain_dim)}, 2)), flat(value_TND)},
      1);
  const Tensor attended_TC =
      kernels::tree_attention(heads_TE, segments_, {heads, heads, size, 0}, {layer.scale, 0});
  return flat(attended_TC.view({tokens, heads, size}).narrow(2, 0, layer.value_dim));
}

}  // namespace slime::model
