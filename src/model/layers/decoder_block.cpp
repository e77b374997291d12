#include "model/layers/decoder_block.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/fused_linear.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/layers/norm_weight.h"
#include "model/layers/tensor_parallel.h"

namespace slime::model {
namespace {

void add_norm(const LayerSite& site, const std::string& name, kernels::Param& norm) {
  if (name.empty()) return;
  site.builder.add(norm, {{site.name(name + ".weight"),
                           {site.config.hidden_size},
                           {},
                           TensorParallel(site.mesh).cuts_rows}});
}

/// The residual stream and what a layer reads of it, which is its norm or itself.
struct LayerInput {
  Tensor sum_TH;
  Tensor input_TH;
};

LayerInput input_of(const Stream& in, const kernels::Param& norm, double eps) {
  if (norm.defined()) {
    if (!in.update_TH.defined())
      return {in.residual_TH, kernels::rms_norm(in.residual_TH, norm, eps)};
    const auto [sum_TH, normed_TH] = kernels::add_rms_norm(in.residual_TH, in.update_TH, norm, eps);
    return {sum_TH, normed_TH};
  }
  const Tensor sum_TH = in.update_TH.defined() ? in.residual_TH + in.update_TH : in.residual_TH;
  return {sum_TH, sum_TH};
}

Tensor linear(const Product& product, const Tensor& x) {
  return kernels::linear(x, product.weight_OI, product.bias_O);
}

/// The residual stream and the first product of what a layer reads of it. The backward makes a norm
/// again that follows an addition.
struct Projected {
  Tensor sum_TH;
  Tensor projected_TO;
};

Projected projected(const Stream& in, const kernels::Param& norm, double eps,
                    const Product& first) {
  if (norm.defined() && in.update_TH.defined()) {
    const auto [sum_TH, projected_TO] = kernels::add_norm_linear(
        in.residual_TH, in.update_TH, norm, eps, first.weight_OI, first.bias_O);
    return {sum_TH, projected_TO};
  }
  const auto [sum_TH, input_TH] = input_of(in, norm, eps);
  return {sum_TH, linear(first, input_TH)};
}

/// Numbers per token that the backward pass keeps around a layer: its input, the sum that the norm
/// before it reads, and the output that the norm after it reads.
Costs costs_around(const DecoderBlock::Norms& norms, bool has_products, int64_t hidden) {
  const bool before = norms.before.defined(), after = norms.after.defined();
  Costs costs;
  costs.parameters = (before ? hidden : 0) + (after ? hidden : 0);
  costs.saved = hidden + (before ? hidden : 0) + (after ? hidden : 0);
  costs.saved_selective = costs.saved - (before && has_products ? hidden : 0);
  return costs;
}

/// For an engine whose device may have kernels that keep nothing.
bool infers(const Attention& attention) {
  return attention.chains() != nullptr && !at::GradMode::is_enabled();
}

}  // namespace

Stream Stream::rows(const Tensor& wanted_R) const {
  return {residual_TH.index_select(0, wanted_R),
          update_TH.defined() ? update_TH.index_select(0, wanted_R) : Tensor()};
}

DecoderBlock::DecoderBlock(const LayerSite& site, const BlockLayers& layers)
    : eps_(site.config.norm_eps),
      hidden_(site.config.hidden_size),
      norms_add_one_(site.config.norms_add_one) {
  const BlockNorms& names = site.config.norms;
  add_norm(site, names.before_mixer, mixer_norms_.before);
  mixer_ = layers.mixer(site);
  add_norm(site, names.after_mixer, mixer_norms_.after);
  add_norm(site, names.before_feed_forward, feed_forward_norms_.before);
  feed_forward_ = layers.feed_forward(site);
  add_norm(site, names.after_feed_forward, feed_forward_norms_.after);
}

kernels::Param DecoderBlock::weight_of(const kernels::Param& norm) const {
  return norm_weight(norm, norms_add_one_);
}

bool DecoderBlock::makes_again() const { return is_selective_ && at::GradMode::is_enabled(); }

Stream DecoderBlock::mixed(const Stream& in, const Tensor& positions_T,
                           Attention& attention) const {
  Stream out;
  if (const Products* products = makes_again() ? mixer_->products() : nullptr) {
    const auto [sum_TH, projected_TE] =
        projected(in, weight_of(mixer_norms_.before), eps_, products->first);
    out = {sum_TH, linear(products->last, mixer_->mix(projected_TE, positions_T, attention))};
  } else {
    const auto [sum_TH, input_TH] = input_of(in, weight_of(mixer_norms_.before), eps_);
    out = {sum_TH, mixer_->forward(input_TH, positions_T, attention)};
  }
  if (mixer_norms_.after.defined())
    out.update_TH = kernels::rms_norm(out.update_TH, weight_of(mixer_norms_.after), eps_);
  return out;
}

Stream DecoderBlock::fed_forward(const Stream& in, RouterPass* routers, bool infers) const {
  Stream out;
  if (const Products* products = makes_again() ? feed_forward_->gated_products() : nullptr) {
    const auto [sum_TH, gate_up_T2F] =
        projected(in, weight_of(feed_forward_norms_.before), eps_, products->first);
    const Product& down = products->last;
    out = {sum_TH, kernels::swiglu_linear(gate_up_T2F, down.weight_OI, down.bias_O)};
  } else {
    const auto [sum_TH, input_TH] = input_of(in, weight_of(feed_forward_norms_.before), eps_);
    out = {sum_TH, infers ? feed_forward_->infer(input_TH, routers)
                          : feed_forward_->forward(input_TH, routers)};
  }
  if (feed_forward_norms_.after.defined())
    out.update_TH = kernels::rms_norm(out.update_TH, weight_of(feed_forward_norms_.after), eps_);
  return out;
}

Stream DecoderBlock::forward(const Stream& in, const Tensor& positions_T, Attention& attention,
                             RouterPass* routers) const {
  return fed_forward(mixed(in, positions_T, attention), routers, infers(attention));
}

Stream DecoderBlock::forward_of_rows(const Tensor& wanted_R, const Stream& in,
                                     const Tensor& positions_T, Attention& attention) const {
  const Stream some = mixed(in, positions_T, attention).rows(wanted_R);
  return some.residual_TH.size(0) == 0 ? some : fed_forward(some, nullptr, infers(attention));
}

BlockNeeds DecoderBlock::needs() const {
  Costs stream;
  stream.passing = 3 * hidden_;  // sum, norm and update
  return {
      mixer_->describe(), feed_forward_->describe(),
      costs_around(mixer_norms_, mixer_->products() != nullptr, hidden_) + mixer_->costs() +
          costs_around(feed_forward_norms_, feed_forward_->gated_products() != nullptr, hidden_) +
          feed_forward_->costs() + stream,
      mixer_->cache()};
}

}  // namespace slime::model
