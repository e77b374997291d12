#include "model/layers/indexer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "kernels/linear.h"

namespace slime::model {
namespace {

/// Of the norm of keys, whatever rms_norm_eps says: so are the published models.
constexpr double kKeyEps = 1e-6;

Tensor unrounded(const Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

/// The first numbers of a head rotate, by the angles of attention.
Tensor rotated(const IndexProjection& in, const Tensor& x, const Tensor& positions_T) {
  const int64_t half = in.cos_PR.size(1), turning_dim = 2 * half;
  const auto of_tokens = [&](const Tensor& table_PR) {
    const Tensor table_TR = table_PR.index_select(0, positions_T).to(x.scalar_type());
    return x.dim() == 3 ? table_TR.unsqueeze(1) : table_TR;
  };
  const Tensor cos = of_tokens(in.cos_PR), sin = of_tokens(in.sin_PR);
  const Tensor turning = x.narrow(-1, 0, turning_dim);
  const Tensor rest = x.narrow(-1, turning_dim, x.size(-1) - turning_dim);
  const auto every_second = [&](int64_t first) { return turning.slice(-1, first, turning_dim, 2); };
  const Tensor a = in.rotates_pairs ? every_second(0) : turning.narrow(-1, 0, half);
  const Tensor b = in.rotates_pairs ? every_second(1) : turning.narrow(-1, half, half);
  // Scores do not depend on the order of a head's numbers, so halves stay halves.
  return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, -1);
}

}  // namespace

IndexInput index_input(const IndexProjection& in, const Tensor& positions_T) {
  const int64_t size = in.key_TD.size(1), heads = in.weight_TJ.size(1);
  const Tensor key_TD = at::layer_norm(unrounded(in.key_TD), {size}, unrounded(in.norm.value),
                                       unrounded(in.norm_bias.value), in.norm_eps);
  const Tensor query_TJD = unrounded(in.query_TE).view({in.query_TE.size(0), heads, size});
  IndexInput out;
  out.query_TJD = rotated(in, query_TJD, positions_T) / std::sqrt(static_cast<double>(size));
  out.key_TD = rotated(in, key_TD, positions_T);
  out.weight_TJ = in.weight_TJ / std::sqrt(static_cast<double>(heads));
  return out;
}

Indexer::Indexer(const LayerSite& site)
    : heads_(site.config.indexer.num_heads),
      size_(site.config.indexer.head_dim),
      rotates_pairs_(site.config.indexer.rotates_pairs),
      cos_PR_(site.rotary.cos_PR),
      sin_PR_(site.rotary.sin_PR) {
  const int64_t hidden = site.config.hidden_size;
  const auto add = [&](auto& param, const char* name, std::vector<int64_t> shape) {
    site.builder.add(param,
                     {{site.name(std::string("self_attn.indexer.") + name), std::move(shape), {}}});
  };
  add(query_, "wq_b.weight", {heads_ * size_, site.config.latent.q_rank});
  add(key_, "wk.weight", {size_, hidden});
  add(norm_, "k_norm.weight", {size_});
  add(norm_bias_, "k_norm.bias", {size_});
  site.builder.add_plain(
      head_weight_, {{site.name("self_attn.indexer.weights_proj.weight"), {heads_, hidden}, {}}});
}

Costs Indexer::costs(const ModelConfig& config) {
  const IndexerConfig& indexer = config.indexer;
  const int64_t heads = indexer.num_heads, size = indexer.head_dim, hidden = config.hidden_size;
  const int64_t products = heads * size * config.latent.q_rank + size * hidden + heads * hidden;
  Costs costs;
  costs.parameters = products + 2 * size;
  costs.flops_per_token = 2 * products;
  costs.flops_per_pair = 2 * heads * size;
  costs.passing = 2 * heads * size + 2 * size + heads;
  return costs;
}

IndexProjection Indexer::products(const Tensor& input_TH, const Tensor& latent_TQ,
                                  const Tensor& weight_TJ) const {
  return {.query_TE = kernels::linear(latent_TQ, query_),
          .key_TD = kernels::linear(input_TH, key_),
          .weight_TJ = weight_TJ,
          .norm = norm_,
          .norm_bias = norm_bias_,
          .norm_eps = kKeyEps,
          .cos_PR = cos_PR_,
          .sin_PR = sin_PR_,
          .rotates_pairs = rotates_pairs_};
}

IndexProjection Indexer::project(const Tensor& input_TH, const Tensor& latent_TQ) const {
  const at::NoGradGuard no_grad;
  return products(input_TH, latent_TQ, kernels::logits(input_TH, head_weight_));
}

IndexInput Indexer::forward(const Tensor& input_TH, const Tensor& latent_TQ,
                            const Tensor& positions_T) const {
  const at::NoGradGuard no_grad;
  const Tensor input = input_TH.detach();
  const Tensor weight_TJ = kernels::linear(unrounded(input), head_weight_);
  return index_input(products(input, latent_TQ.detach(), weight_TJ), positions_T);
}

}  // namespace slime::model
