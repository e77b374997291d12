#include "engine/gpu_attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "kernels/adapters.h"
#include "kernels/gpu/latent_pairs.h"
#include "kernels/trace.h"

namespace slime::engine {
namespace {

/// Of the adapter that all rows take.
std::vector<kernels::LatentPair> pairs_of(const model::LatentLayer& layer) {
  std::vector<kernels::LatentPair> pairs;
  const kernels::MatrixAdapters* adapters = layer.expand.matrix.adapters;
  if (!kernels::adds(adapters)) return pairs;
  check(adapters->rows->takes_one(), "rows of latent attention on a GPU have one adapter");
  const int64_t slot = adapters->rows->shares.front().slot;
  if (slot < 0) return pairs;
  for (const kernels::LowRankPair* pair : adapters->of_slot[static_cast<std::size_t>(slot)]) {
    const Tensor& b_ER = pair->b.value;
    pairs.push_back({pair->a.value,
                     b_ER.view({layer.num_heads, layer.plain_dim + layer.value_dim, b_ER.size(1)}),
                     pair->scale});
  }
  return pairs;
}

}  // namespace

GpuAttention::GpuAttention(const kernels::EngineKernels& gpu,
                           std::span<const model::BlockNeeds> blocks, CacheGroups groups,
                           const Tensor& keys, const Tensor& values, const Tensor& index_keys,
                           const Tensor& states_PX, int64_t sparse_keys)
    : gpu_(gpu),
      groups_(std::move(groups)),
      chains_(kernels::block_chains_for(keys)),
      has_indexers_(index_keys.defined()),
      sparse_keys_(sparse_keys) {
  int64_t layer_with_indexer = 0, begin = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const model::BlockNeeds& block = blocks[i];
    const int64_t slot = groups_.of_layer[i].slot;
    keys_.push_back(slot >= 0 ? keys.select(0, slot) : Tensor());
    values_.push_back(slot >= 0 && values.defined() ? values.select(0, slot) : Tensor());
    const bool has_indexer = block.cache.index_size > 0;
    index_keys_.push_back(has_indexer ? index_keys.select(0, layer_with_indexer++) : Tensor());
    const int64_t numbers = block.cache.state_bytes / static_cast<int64_t>(sizeof(float));
    states_.push_back(numbers > 0 ? states_PX.narrow(1, begin, numbers) : Tensor());
    begin += numbers;
  }
}

void GpuAttention::begin_step(const GpuStepInputs& in) {
  batch_ = in.batch;
  window_batches_ = in.window_batches;
  is_sparse_decode_ = has_indexers_ && in.is_decode;
  chosen_TC_.reset();
  if (has_indexers_ && !is_sparse_decode_) sparse_.begin_step(in.batch, in.spans);
}

const kernels::PagedBatch& GpuAttention::batch_of(int layer) const {
  const int64_t group = groups_.of_layer[static_cast<std::size_t>(layer)].group;
  return group == 0 ? batch_ : window_batches_[static_cast<std::size_t>(group) - 1];
}

Tensor GpuAttention::attend_delta(const model::DeltaLayer& layer, const kernels::DeltaTokens& in) {
  const kernels::TraceRange range("paged_delta");
  return gpu_.paged_delta({.batch = &batch_,
                           .in = in,
                           .shape = layer.shape,
                           .taps = layer.taps,
                           .conv = layer.conv.value,
                           .states_PX = states_[layer.index]});
}

Tensor GpuAttention::attend(const model::AttentionLayer& layer, const Tensor& qkv_TE,
                            const Tensor& positions_T) {
  kernels::PagedCall call;
  call.batch = &batch_of(layer.index);
  call.qkv_TE = qkv_TE;
  call.rotary_row_T = positions_T;
  call.q_norm_D = layer.q_norm.value;
  call.k_norm_D = layer.k_norm.value;
  call.cos_PR = layer.cos_PR;
  call.sin_PR = layer.sin_PR;
  call.sinks_N = layer.sinks.value;
  call.heads = {layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.norm_eps};
  call.attention = {layer.scale, layer.window, layer.score_cap};
  call.keys = keys_[layer.index];
  call.values = values_[layer.index];
  return gpu_.paged_attention(call);
}

Tensor GpuAttention::attend_projected_latent(const model::LatentLayer& layer,
                                             const model::LatentProjection& in,
                                             const Tensor& positions_T) {
  kernels::LatentCall call;
  call.batch = &batch_of(layer.index);
  call.shape = {layer.num_heads, layer.rank, layer.rotary_dim, layer.plain_dim, layer.value_dim};
  call.scale = layer.scale;
  call.query_TE = in.query_TE;
  call.latent_TL = in.latent_TL;
  call.rotary_key_TR = in.rotary_key_TR;
  call.rotary_row_T = positions_T;
  call.latent_norm_L = layer.latent_norm.value;
  call.norm_eps = layer.norm_eps;
  call.expand = layer.expand.matrix.without_adapters().plain();
  call.pairs = pairs_of(layer);
  call.cos_PR = layer.cos_PR;
  call.sin_PR = layer.sin_PR;
  call.rotary_order_R = layer.rotary_order_R;
  call.rows = keys_[layer.index];
  if (layer.index_count == 0) return gpu_.latent_attention(call);
  if (in.index) {
    const kernels::IndexRows rows = gpu_.index_rows({.query_TE = in.index->query_TE,
                                                     .key_TD = in.index->key_TD,
                                                     .weight_TJ = in.index->weight_TJ,
                                                     .norm_D = in.index->norm.value,
                                                     .norm_bias_D = in.index->norm_bias.value,
                                                     .norm_eps = in.index->norm_eps,
                                                     .cos_PR = in.index->cos_PR,
                                                     .sin_PR = in.index->sin_PR,
                                                     .rotary_row_T = positions_T,
                                                     .rotates_pairs = in.index->rotates_pairs});
    chosen_TC_ = gpu_.choose_tokens({.batch = &batch_,
                                     .query_TJD = rows.query_TJD,
                                     .key_TD = rows.key_TD,
                                     .weight_TJ = rows.weight_TJ,
                                     .keys = index_keys_[layer.index],
                                     .count = layer.index_count,
                                     .most_keys = sparse_keys_});
  }
  check(chosen_TC_.defined(), "a layer before this one has chosen tokens");
  call.chosen_TC = chosen_TC_;
  if (!layer.lends_choice) chosen_TC_.reset();
  return gpu_.latent_attention(call);
}

Tensor GpuAttention::attend_latent(const model::LatentLayer& layer, const model::LatentInput& in,
                                   const Tensor& positions_T) {
  check(layer.index_count > 0, "latent attention without an indexer comes as products leave it");
  const int64_t tokens = in.latent_TL.size(0), heads = layer.num_heads, rotary = layer.rotary_dim,
                size = rotary + layer.rank;
  const auto flat = [&](const Tensor& x) { return x.reshape({tokens, -1}); };
  // All rotating numbers as heads of their own; the value head is not looked at.
  const Tensor rotated_TE =
      kernels::kernels_for(in.latent_TL)
          .norm_rotate(at::cat({flat(in.rotary_query_TNR), in.rotary_key_TR, in.rotary_key_TR}, 1),
                       positions_T, {}, {}, layer.cos_PR, layer.sin_PR, {heads, 1, rotary, 0});
  const Tensor expand_NEL = layer.expand.matrix.without_adapters().plain().view(
      {heads, layer.plain_dim + layer.value_dim, layer.rank});
  const std::vector<kernels::LatentPair> pairs = pairs_of(layer);
  const Tensor plain_NTL =
      at::bmm(in.plain_query_TNP.transpose(0, 1), expand_NEL.narrow(1, 0, layer.plain_dim));
  const Tensor q_TNE =
      at::cat({rotated_TE.narrow(1, 0, heads * rotary).view({tokens, heads, rotary}),
               plain_NTL.transpose(0, 1)},
              2);
  kernels::add_latent_queries_(pairs, in.plain_query_TNP, q_TNE);
  const Tensor rows_XE = keys_[layer.index].view({-1, size});
  rows_XE.index_copy_(0, batch_.slot_T.to(at::kLong),
                      at::cat({rotated_TE.narrow(1, heads * rotary, rotary), in.latent_TL}, 1));
  if (in.index) sparse_.choose(*in.index, index_keys_[layer.index], layer.index_count);
  const Tensor seen_TNL = sparse_.attend(q_TNE, rows_XE, layer.rank, layer.scale);
  const Tensor y_TC =
      flat(at::bmm(seen_TNL.transpose(0, 1),
                   expand_NEL.narrow(1, layer.plain_dim, layer.value_dim).transpose(1, 2))
               .transpose(0, 1));
  kernels::add_latent_values_(pairs, seen_TNL, y_TC);
  return y_TC;
}

}  // namespace slime::engine
