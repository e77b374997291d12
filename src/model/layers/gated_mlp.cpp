#include "model/layers/gated_mlp.h"

#include <fmt/format.h>

#include "kernels/geglu.h"
#include "kernels/linear.h"
#include "kernels/swiglu.h"

namespace slime::model {

Costs gated_mlp_costs(const GatedMlpShape& shape) {
  const int64_t h = shape.hidden, f = shape.width;
  Costs costs;
  costs.parameters = 3 * h * f + (shape.has_bias ? 2 * f + h : 0);
  costs.flops_per_token = 6 * h * f;
  costs.saved = 3 * f;  // gate, up and their product
  // The product is made again.
  costs.saved_selective = shape.activation == Activation::kSilu ? 2 * f : 3 * f;
  costs.gradients = 3 * f;
  costs.passing = 3 * f;
  return costs;
}

GatedMlp::GatedMlp(const LayerSite& site, const std::string& name, const GatedMlpShape& shape)
    : tp_(site.mesh), shape_(shape) {
  const int64_t hidden = shape_.hidden, width = shape_.width;
  const Slice rows = tensor_parallel_slice(site.mesh, 0, width);
  Weights::Builder& builder = site.builder;
  if (site.config.has_fused_gate_up) {
    builder.add(products_.first.weight_OI, {{site.name(name + ".gate_up_proj.weight"),
                                             {2 * width, hidden},
                                             {rows, shifted(rows, width)}}});
  } else {
    builder.add(products_.first.weight_OI,
                {{site.name(name + ".gate_proj.weight"), {width, hidden}, rows},
                 {site.name(name + ".up_proj.weight"), {width, hidden}, rows}});
  }
  if (shape_.has_bias) {
    builder.add(products_.first.bias_O, {{site.name(name + ".gate_proj.bias"), {width}, rows},
                                         {site.name(name + ".up_proj.bias"), {width}, rows}});
  }
  builder.add(products_.last.weight_OI, {{site.name(name + ".down_proj.weight"),
                                          {hidden, width},
                                          tensor_parallel_slice(site.mesh, 1, width)}});
  if (shape_.has_bias) {
    builder.add(products_.last.bias_O,
                {{site.name(name + ".down_proj.bias"), {hidden}, {}, !tp_.is_alone()}});
  }
}

Tensor GatedMlp::forward(const Tensor& input_TH, RouterPass*) const {
  const Tensor gate_up_T2F =
      gathered_linear(input_TH, rows_of_all(input_TH, tp_), products_.first, tp_);
  return summed_linear(gated(gate_up_T2F), products_.last, tp_);
}

Tensor GatedMlp::partial(const Tensor& input_TH) const {
  const Product& gate_up = products_.first;
  return partial_linear(gated(kernels::linear(input_TH, gate_up.weight_OI, gate_up.bias_O)),
                        products_.last, tp_);
}

Tensor GatedMlp::infer(const Tensor& input_TH, RouterPass* routers) const {
  if (tp_.cuts_rows) return forward(input_TH, routers);
  return summed_linear(inferred_gated(input_TH), products_.last, tp_);
}

Tensor GatedMlp::inferred_partial(const Tensor& input_TH) const {
  return partial_linear(inferred_gated(input_TH), products_.last, tp_);
}

/// Of all rows.
Tensor GatedMlp::inferred_gated(const Tensor& input_TH) const {
  const Product& gate_up = products_.first;
  return shape_.activation == Activation::kSilu
             ? kernels::gated_linear(input_TH, gate_up.weight_OI, gate_up.bias_O)
             : gated(kernels::linear(input_TH, gate_up.weight_OI, gate_up.bias_O));
}

Tensor GatedMlp::gated(const Tensor& gate_up_T2F) const {
  return shape_.activation == Activation::kGelu ? kernels::geglu(gate_up_T2F)
                                                : kernels::swiglu(gate_up_T2F);
}

std::string GatedMlp::describe() const { return fmt::format("feed-forward {}", shape_.width); }

std::unique_ptr<FeedForward> make_gated_mlp(const LayerSite& site) {
  return std::make_unique<GatedMlp>(
      site, "mlp",
      GatedMlpShape{site.config.hidden_size, site.config.intermediate_size,
                    site.config.has_mlp_bias, site.config.activation});
}

}  // namespace slime::model
