#pragma once

/// Attention whose query heads share key and value heads in groups (arXiv 2305.13245), with rotary
/// positions, and norms of queries and keys where a family has them.
///
/// Where a family has a gate of the output, the projection has its N D outputs too: of each head the
/// query, then the gate.
///
/// Dimensions: T tokens, H hidden, N query heads, K key-value heads, D head size, E = (N + 2 K) D,
/// C = N D.

#include <memory>

#include "model/layers/layer_site.h"
#include "model/layers/mixer.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {

struct GroupedQueryShape {
  int64_t hidden = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  QkNorm qk_norm = QkNorm::kNone;
  bool has_qkv_bias = false;
  bool has_output_bias = false;
  bool has_sinks = false;
  bool has_gate = false;
};
Costs grouped_query_costs(const GroupedQueryShape& shape);

class GroupedQueryAttention final : public Mixer {
 public:
  /// Registers "self_attn.*" of the block. Throws ConfigError where tensor-parallel ranks do not divide
  /// the heads.
  explicit GroupedQueryAttention(const LayerSite& site);
  GroupedQueryAttention(const GroupedQueryAttention&) = delete;  // the builder points at parameters

  Tensor forward(const Tensor& input_TH, const Tensor& positions_T,
                 Attention& attention) const override;
  Costs costs() const override { return grouped_query_costs(shape_); }
  CacheSpec cache() const override;
  std::string describe() const override;
  const Products* products() const override { return &products_; }
  Tensor mix(const Tensor& qkv_TE, const Tensor& positions_T, Attention& attention) const override;

 private:
  Tensor normed_heads(const Tensor& qkv_TE) const;
  Tensor attended(const Tensor& qkv_TE, const Tensor& positions_T, Attention& attention) const;

  TensorParallel tp_;
  GroupedQueryShape shape_;
  bool norms_add_one_;
  AttentionLayer layer_;  // of this rank's heads
  Products products_;     // [E, H] and [H, C]
  /// Norms that the mixer takes itself, before attention sees the heads: over all heads [N D], or per
  /// head [D] where the heads are reordered. Undefined: there are none, or attention takes them.
  kernels::Param own_q_norm_;
  kernels::Param own_k_norm_;  // [K D] or [D]
  Tensor column_order_E_;      // int64, of the projection for the rotation; undefined: as it is
};

std::unique_ptr<Mixer> make_grouped_query_attention(const LayerSite& site);

}  // namespace slime::model
