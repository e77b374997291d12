#include "model/absorbed_latent.h"

#include <ATen/ATen.h>

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
        expand_NEL(layer.expand.matrix.plain().view(
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

}  // namespace

Tensor absorbed_heads(const LatentLayer& layer, const LatentInput& in) {
  const ByHead by_head(layer, in.latent_TL.size(0));
  const Tensor query_TNL = by_head.tokens_of(
      kernels::kernels_for(in.latent_TL)
          .grouped_input_grad(by_head.rows(in.plain_query_TNP),
                              by_head.expand_NEL.narrow(1, 0, layer.plain_dim), by_head.starts));
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
  return by_head
      .tokens_of(kernels::kernels_for(seen_TE).grouped_linear(
          by_head.rows(seen_TNL), by_head.expand_NEL.narrow(1, layer.plain_dim, layer.value_dim),
          by_head.starts))
      .reshape({by_head.tokens, -1});
}

}  // namespace slime::model
