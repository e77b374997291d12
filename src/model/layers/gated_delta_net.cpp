#include "model/layers/gated_delta_net.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "kernels/delta_decay.h"
#include "kernels/delta_kernels.h"
#include "kernels/gpu/delta_limits.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/layers/grouped_query_attention.h"

namespace slime::model {
namespace {

void check_delta_place(const LayerSite& site) {
  if (!site.rotary.cos_PR.is_cuda()) return;
  const DeltaConfig& config = site.config.delta;
  if (config.shape.key_dim <= kernels::kMostDeltaKeys &&
      config.shape.value_dim <= kernels::kMostDeltaValues && config.taps <= kernels::kMostDeltaTaps)
    return;
  throw ConfigError(fmt::format(
      "layer {} is a gated delta net with keys of {}, values of {} and a convolution of {}; a GPU "
      "has up to {}, {} and {}: use device cpu",
      site.index, config.shape.key_dim, config.shape.value_dim, config.taps,
      kernels::kMostDeltaKeys, kernels::kMostDeltaValues, kernels::kMostDeltaTaps));
}

/// Of a rank's key heads, and of the value heads that share them.
kernels::DeltaShape shape_of_rank(const DeltaConfig& config, int64_t ranks) {
  kernels::DeltaShape shape = config.shape;
  shape.key_heads /= ranks;
  shape.value_heads /= ranks;
  return shape;
}

/// Files that hold [q, k, v, z] and [b, a] of each key head together: where the outputs lie that belong
/// to q, k, v, z, b, a of all heads.
Tensor order_of_groups(const kernels::DeltaShape& shape) {
  const int64_t share = shape.value_heads / shape.key_heads, values = share * shape.value_dim;
  const int64_t group = 2 * shape.key_dim + 2 * values, rates = shape.key_heads * group;
  std::vector<Tensor> parts;
  // From each group `size` columns, `skip` behind its beginning.
  const auto add = [&](int64_t start, int64_t stride, int64_t skip, int64_t size) {
    const Tensor first_K1 = at::arange(shape.key_heads, at::kLong).mul_(stride).unsqueeze(1);
    parts.push_back((first_K1 + at::arange(size, at::kLong) + (start + skip)).view({-1}));
  };
  add(0, group, 0, shape.key_dim);
  add(0, group, shape.key_dim, shape.key_dim);
  add(0, group, 2 * shape.key_dim, values);
  add(0, group, 2 * shape.key_dim + values, values);
  add(rates, 2 * share, 0, share);
  add(rates, 2 * share, share, share);
  return at::cat(parts);
}

/// Scores and states have this precision.
Tensor widened(const Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

Costs delta_costs(int64_t hidden, const DeltaConfig& config) {
  const kernels::DeltaShape& shape = config.shape;
  const int64_t heads = shape.value_heads, values = shape.values(), channels = shape.channels(),
                outputs = channels + values + 2 * heads;
  Costs costs;
  costs.parameters =
      outputs * hidden + channels * config.taps + 2 * heads + shape.value_dim + values * hidden;
  // Products, the convolution, and of each head what it reads from its state, takes out and writes.
  costs.flops_per_token =
      2 * hidden * (outputs + values) + 2 * channels * config.taps + 6 * shape.state();
  // The projection and its parts, the rule's float32 input and output, the norm and its gate.
  costs.saved = costs.saved_selective = 2 * outputs + 3 * values;
  costs.saved_float32 = channels + 2 * heads + 3 * values;
  // In float32: chunks of queries, keys and values with their gradients, and the states between them.
  costs.gradients =
      2 * (10 * (2 * heads * shape.key_dim + values) + shape.state() / kernels::kDeltaChunk);
  costs.passing = 2 * outputs + 2 * (channels + 6 * heads * shape.key_dim + 6 * values);
  return costs;
}

GatedDeltaNet::GatedDeltaNet(const LayerSite& site)
    : tp_(site.mesh),
      hidden_(site.config.hidden_size),
      config_(site.config.delta),
      norm_eps_(site.config.norm_eps) {
  check_delta_place(site);
  const kernels::DeltaShape& shape = config_.shape;
  const int64_t heads = shape.value_heads, keys = shape.keys(), values = shape.values(),
                channels = shape.channels();
  const auto name = [&](const char* tail) { return site.name(std::string("linear_attn.") + tail); };
  // A rank's of `count` heads, `numbers` each, which begin at `begin` in the tensor.
  const auto heads_of_rank = [&](int64_t count, int64_t numbers, int64_t begin = 0, int dim = 0) {
    Slice slice = tensor_parallel_slice(site.mesh, dim, count);
    slice.begin = begin + slice.begin * numbers;
    slice.end = begin + slice.end * numbers;
    return slice;
  };
  const Slice of_heads = heads_of_rank(heads, 1);
  using Component = Weights::Builder::Component;
  // A tensor of queries, keys and values: of each a rank has a slice.
  const auto mixed = [&](const char* tail, std::vector<int64_t> full_shape) {
    return Component{.name = name(tail),
                     .full_shape = std::move(full_shape),
                     .slices = {heads_of_rank(shape.key_heads, shape.key_dim),
                                heads_of_rank(shape.key_heads, shape.key_dim, keys),
                                heads_of_rank(heads, shape.value_dim, 2 * keys)}};
  };
  Weights::Builder& builder = site.builder;
  builder.add(decay_bias_N_, {{name("dt_bias"), {heads}, of_heads}});
  builder.add(a_log_N_, {{.name = name("A_log"),
                          .full_shape = {heads},
                          .slices = of_heads,
                          .keeps_stored_precision = true}});
  builder.add(layer_.conv, {mixed("conv1d.weight", {channels, 1, config_.taps})});
  layer_.index = site.index;
  layer_.shape = shape_of_rank(config_, tp_.ranks.size());
  layer_.taps = config_.taps;
  // Rates and decays, which are outputs of this matrix, need more digits than eight bits.
  if (config_.is_grouped_by_key_head) {
    const int64_t share = heads / shape.key_heads;
    builder.add_plain(
        projection_,
        {{name("in_proj_qkvz.weight"),
          {channels + values, hidden_},
          heads_of_rank(shape.key_heads, 2 * shape.key_dim + 2 * share * shape.value_dim)},
         {name("in_proj_ba.weight"),
          {2 * heads, hidden_},
          heads_of_rank(shape.key_heads, 2 * share)}});
    column_order_ = order_of_groups(layer_.shape).to(site.rotary.cos_PR.device());
  } else {
    builder.add_plain(
        projection_,
        {mixed("in_proj_qkv.weight", {channels, hidden_}),
         {name("in_proj_z.weight"), {values, hidden_}, heads_of_rank(heads, shape.value_dim)},
         {name("in_proj_b.weight"), {heads, hidden_}, of_heads},
         {name("in_proj_a.weight"), {heads, hidden_}, of_heads}});
  }
  builder.add(norm_V_, {{.name = name("norm.weight"),
                         .full_shape = {shape.value_dim},
                         .slices = {},
                         .has_partial_grad = !tp_.is_alone(),
                         .keeps_stored_precision = true}});
  builder.add(
      output_.weight_OI,
      {{name("out_proj.weight"), {hidden_, values}, heads_of_rank(heads, shape.value_dim, 0, 1)}});
}

CacheSpec GatedDeltaNet::cache() const {
  const int64_t numbers = layer_.shape.state() + (config_.taps - 1) * layer_.shape.channels();
  return {.state_bytes = numbers * static_cast<int64_t>(sizeof(float))};
}

std::string GatedDeltaNet::describe() const {
  const kernels::DeltaShape& shape = config_.shape;
  return fmt::format("gated delta net, {} value heads of {} x {}, {} key heads, convolution of {}",
                     shape.value_heads, shape.key_dim, shape.value_dim, shape.key_heads,
                     config_.taps);
}

Tensor GatedDeltaNet::forward(const Tensor& input_LH, const Tensor& positions_T,
                              Attention& attention) const {
  const kernels::DeltaShape& shape = layer_.shape;
  const int64_t heads = shape.value_heads, values = shape.values(), tokens = positions_T.size(0);
  const Tensor projected_TO = gathered_linear(input_LH, tokens, {projection_, {}}, tp_);
  const Tensor ordered_TO =
      column_order_.defined() ? projected_TO.index_select(1, column_order_) : projected_TO;
  int64_t next = 0;
  const auto part = [&](int64_t size) { return ordered_TO.narrow(1, (next += size) - size, size); };
  kernels::DeltaTokens in;
  in.mixed_TE = part(shape.channels());
  const Tensor z_TC = part(values), b_TN = part(heads), a_TN = part(heads);
  const kernels::DeltaKernels* fused =
      at::GradMode::is_enabled() ? nullptr : kernels::delta_kernels_for(ordered_TO);
  std::optional<kernels::DeltaRates> rates;
  if (fused != nullptr) rates = fused->delta_rates(a_TN, b_TN, a_log_N_.value, decay_bias_N_.value);
  in.rate_TN = rates ? rates->rate_TN : widened(b_TN).sigmoid();
  in.decay_TN = rates ? rates->decay_TN : kernels::log_decay(a_TN, a_log_N_, decay_bias_N_);
  const Tensor read_TC = attention.attend_delta(layer_, in);
  std::optional<Tensor> gated_TC;
  if (fused != nullptr) gated_TC = fused->gated_norm(read_TC, z_TC, norm_V_.value, norm_eps_);
  if (!gated_TC) {
    const Tensor normed_TC =
        kernels::rms_norm(read_TC.view({tokens * heads, shape.value_dim}), norm_V_, norm_eps_)
            .view({tokens, values});
    gated_TC = (normed_TC * at::silu(widened(z_TC))).to(input_LH.scalar_type());
  }
  return summed_linear(*gated_TC, output_, tp_);
}

std::unique_ptr<Mixer> make_delta_net_or_attention(const LayerSite& site) {
  if (site.config.delta.is_in(site.index)) return std::make_unique<GatedDeltaNet>(site);
  return make_grouped_query_attention(site);
}

}  // namespace slime::model
