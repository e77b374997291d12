#include "model/absorbed_latent.h"

#include <ATen/ATen.h>

#include "kernels/adapters.h"
#include "kernels/device.h"

namespace slime::model {
namespace {

/// Rows of one head together, as grouped products take them, with the matrices of the heads.
struct ByHead {
  int64_t tokens, heads;
  std::vector<int64_t> starts;
  Tensor expand_NEL;

  ByHead(const LatentLayer& layer, int64_t num_tokens)
      : tokens(num_tokens),
        heads(layer.num_heads),
        expand_NEL(layer.expand.matrix.without_adapters().plain().view(
            {heads, layer.plain_dim + layer.value_dim, layer.rank})) {
    for (int64_t head = 0; head <= heads; ++head) starts.push_back(head * tokens);
  }
  Tensor rows(const Tensor& x_TNX) const {
    // Of one head (an engine of many ranks) it would be a view of rows that lie apart.
    return x_TNX.transpose(0, 1).reshape({heads * tokens, x_TNX.size(2)}).contiguous();
  }
  Tensor tokens_of(const Tensor& x_SX) const {
    return x_SX.view({heads, tokens, -1}).transpose(0, 1);
  }
};

/// Adds a product with [begin, begin + size) of each head's outputs of the pairs: from those to latents
/// (`is_from_heads`) or the opposite. x [N T, ...] and y lie by head.
void add_pairs_(const Tensor& y_SX, const Tensor& x_SX, const LatentLayer& layer, int64_t tokens,
                int64_t begin, int64_t size, bool is_from_heads) {
  const kernels::MatrixAdapters* adapters = layer.expand.matrix.adapters;
  if (!kernels::adds(adapters)) return;
  const int64_t heads = layer.num_heads;
  const kernels::Device& device = kernels::kernels_for(x_SX);
  const auto type = kernels::accumulator_of(x_SX);
  for (const kernels::AdapterRows::Share& share : adapters->rows->shares) {
    if (share.slot < 0) continue;
    Tensor row_S;
    if (share.row_S.defined())
      row_S = (at::arange(heads, at::kLong).unsqueeze(1) * tokens + share.row_S.unsqueeze(0))
                  .view({-1});
    const Tensor x = (row_S.defined() ? x_SX.index_select(0, row_S) : x_SX).to(type).contiguous();
    std::vector<int64_t> starts;
    for (int64_t head = 0; head <= heads; ++head) starts.push_back(head * x.size(0) / heads);
    for (const kernels::LowRankPair* pair : adapters->of_slot[static_cast<size_t>(share.slot)]) {
      const Tensor b_NOR =
          pair->b.value.view({heads, layer.plain_dim + layer.value_dim, -1}).narrow(1, begin, size);
      const Tensor addition =
          is_from_heads
              ? device.linear_input_grad(device.grouped_input_grad(x, b_NOR.contiguous(), starts),
                                         pair->a.value)
              : device.grouped_linear(device.linear(x, pair->a.value, {}), b_NOR.contiguous(),
                                      starts);
      const Tensor scaled = (addition * pair->scale).to(y_SX.scalar_type());
      if (row_S.defined()) {
        Tensor(y_SX).index_add_(0, row_S, scaled);
      } else {
        y_SX.add_(scaled);
      }
    }
  }
}

}  // namespace

Tensor absorbed_heads(const LatentLayer& layer, const LatentInput& in) {
  const ByHead by_head(layer, in.latent_TL.size(0));
  const Tensor rows_SP = by_head.rows(in.plain_query_TNP);
  const Tensor query_SL =
      kernels::kernels_for(in.latent_TL)
          .grouped_input_grad(rows_SP, by_head.expand_NEL.narrow(1, 0, layer.plain_dim),
                              by_head.starts);
  add_pairs_(query_SL, rows_SP, layer, by_head.tokens, 0, layer.plain_dim, true);
  const Tensor query_TNL = by_head.tokens_of(query_SL);
  return at::cat({at::cat({in.rotary_query_TNR, query_TNL}, 2).reshape({by_head.tokens, -1}),
                  in.rotary_key_TR, in.latent_TL},
                 1);
}

AttentionLayer absorbed_layer(const LatentLayer& layer) {
  AttentionLayer shared;
  shared.index = layer.index;
  shared.num_heads = layer.num_heads;
  shared.num_kv_heads = 1;
  shared.head_dim = layer.rotary_dim + layer.rank;
  shared.values_are_keys = true;
  shared.scale = layer.scale;
  shared.cos_PR = layer.cos_PR;
  shared.sin_PR = layer.sin_PR;
  return shared;
}

Tensor expanded_values(const LatentLayer& layer, const Tensor& seen_TE) {
  const ByHead by_head(layer, seen_TE.size(0));
  const Tensor seen_TNL =
      seen_TE.view({by_head.tokens, by_head.heads, -1}).narrow(2, layer.rotary_dim, layer.rank);
  const Tensor rows_SL = by_head.rows(seen_TNL);
  const Tensor value_SV = kernels::kernels_for(seen_TE).grouped_linear(
      rows_SL, by_head.expand_NEL.narrow(1, layer.plain_dim, layer.value_dim), by_head.starts);
  add_pairs_(value_SV, rows_SL, layer, by_head.tokens, layer.plain_dim, layer.value_dim, false);
  return by_head.tokens_of(value_SV).reshape({by_head.tokens, -1});
}

}  // namespace slime::model
