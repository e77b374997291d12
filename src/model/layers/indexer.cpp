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

}  // namespace

Indexer::Indexer(const LayerSite& site)
    : heads_(site.config.indexer.num_heads),
      size_(site.config.indexer.head_dim),
      rotary_dim_(site.config.rotary_dim),
      rotates_pairs_(site.config.indexer.rotates_pairs),
      cos_PR_(site.rotary.cos_PR),
      sin_PR_(site.rotary.sin_PR) {
  const int64_t hidden = site.config.hidden_size;
  const auto add = [&](kernels::Param& param, const char* name, std::vector<int64_t> shape) {
    site.builder.add(param,
                     {{site.name(std::string("self_attn.indexer.") + name), std::move(shape), {}}});
  };
  add(query_, "wq_b.weight", {heads_ * size_, site.config.latent.q_rank});
  add(key_, "wk.weight", {size_, hidden});
  add(norm_, "k_norm.weight", {size_});
  add(norm_bias_, "k_norm.bias", {size_});
  add(head_weight_, "weights_proj.weight", {heads_, hidden});
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

/// The first numbers of a head rotate, by the angles of attention.
Tensor Indexer::rotated(const Tensor& x, const Tensor& positions_T) const {
  const int64_t half = rotary_dim_ / 2;
  const auto of_tokens = [&](const Tensor& table_PR) {
    const Tensor table_TR = table_PR.index_select(0, positions_T).to(x.scalar_type());
    return x.dim() == 3 ? table_TR.unsqueeze(1) : table_TR;
  };
  const Tensor cos = of_tokens(cos_PR_), sin = of_tokens(sin_PR_);
  const Tensor turning = x.narrow(-1, 0, rotary_dim_);
  const Tensor rest = x.narrow(-1, rotary_dim_, size_ - rotary_dim_);
  const auto every_second = [&](int64_t first) { return turning.slice(-1, first, rotary_dim_, 2); };
  const Tensor a = rotates_pairs_ ? every_second(0) : turning.narrow(-1, 0, half);
  const Tensor b = rotates_pairs_ ? every_second(1) : turning.narrow(-1, half, half);
  // Scores do not depend on the order of a head's numbers, so halves stay halves.
  return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, -1);
}

IndexInput Indexer::forward(const Tensor& input_TH, const Tensor& latent_TQ,
                            const Tensor& positions_T) const {
  const at::NoGradGuard no_grad;
  const Tensor input = input_TH.detach();
  const Tensor key_TD =
      at::layer_norm(unrounded(kernels::linear(input, key_)), {size_}, unrounded(norm_.value),
                     unrounded(norm_bias_.value), kKeyEps);
  const Tensor query_TJD =
      unrounded(kernels::linear(latent_TQ.detach(), query_)).view({input.size(0), heads_, size_});
  IndexInput out;
  out.query_TJD = rotated(query_TJD, positions_T) / std::sqrt(static_cast<double>(size_));
  out.key_TD = rotated(key_TD, positions_T);
  out.weight_TJ =
      kernels::linear(unrounded(input), head_weight_) / std::sqrt(static_cast<double>(heads_));
  return out;
}

}  // namespace slime::model
