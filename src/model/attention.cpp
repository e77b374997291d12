#include "model/attention.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/rms_norm.h"
#include "model/layers/indexer.h"

namespace slime::model {

Tensor Attention::attend_latent(const LatentLayer&, const LatentInput&, const Tensor&) {
  throw BugError("layers of latent attention are not built where attention has no latent form");
}

Tensor Attention::attend_projected_latent(const LatentLayer& layer, const LatentProjection& in,
                                          const Tensor& positions_T) {
  const auto ordered = [&](const Tensor& x) {
    return layer.rotary_order_R.defined() ? x.index_select(x.dim() - 1, layer.rotary_order_R) : x;
  };
  const Tensor query_TND = in.query_TE.reshape(
      {in.query_TE.size(0), layer.num_heads, layer.plain_dim + layer.rotary_dim});
  LatentInput out;
  out.plain_query_TNP = query_TND.narrow(2, 0, layer.plain_dim);
  out.rotary_query_TNR = ordered(query_TND.narrow(2, layer.plain_dim, layer.rotary_dim));
  out.latent_TL = kernels::rms_norm(in.latent_TL.contiguous(), layer.latent_norm, layer.norm_eps);
  out.rotary_key_TR = ordered(in.rotary_key_TR);
  if (in.index) out.index = index_input(*in.index, positions_T);
  return attend_latent(layer, out, positions_T);
}

Tensor Attention::attend_delta(const DeltaLayer&, const kernels::DeltaTokens&) {
  throw BugError("gated delta nets are not built where attention has no states");
}

}  // namespace slime::model
