#include "model/layers/expert_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <functional>

#include "core/error.h"
#include "kernels/device.h"
#include "kernels/linear.h"
#include "kernels/with_value.h"
#include "model/layers/router.h"
#include "model/layers/router_losses.h"
#include "model/layers/row_shares.h"
#include "model/router_pass.h"

namespace slime::model {
namespace {

/// Scores, routers' products and weights of visits have this precision.
Tensor wide(const Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

bool is_in_training_arithmetic(const Tensor& x) {
  return kernels::kernels_for(x).arithmetic() == kernels::Arithmetic::kTraining;
}

/// In training arithmetic of a GPU.
kernels::RouterChoices exact_choices(const Tensor& input_TH, const kernels::RoutedExperts& router) {
  const kernels::ExpertKernels* kernels = kernels::expert_kernels_for(input_TH);
  check(kernels != nullptr, "training arithmetic has a device with kernels for experts");
  return kernels->exact_choices(input_TH, router);
}

/// Numbers of training arithmetic with the gradients of what other runs compute.
Tensor exact_value(const Tensor& value, const std::function<Tensor()>& computed) {
  return at::GradMode::is_enabled() ? kernels::with_value(computed(), value) : value;
}

}  // namespace

Costs expert_costs(int64_t hidden, const ExpertsConfig& config) {
  const int64_t k = config.per_token, f = config.width, visited = k * f;
  Costs costs;
  costs.parameters = config.count * (3 * hidden * f + hidden);
  if (config.has_router_bias) costs.parameters += config.count;
  if (config.are_in_turns) costs.parameters += config.count * (2 * f + hidden);
  costs.flops_per_token = 6 * hidden * visited;
  costs.saved = costs.saved_selective =
      2 * visited;  // gates and ups; their products are made again
  // Scores, and the weights, experts and places (64 bits) of visits.
  costs.saved_float32 = 2 * config.count + 6 * k;
  costs.gradients = k * hidden + 4 * visited;
  costs.passing = k * hidden + 3 * visited;
  if (config.shared_width > 0) costs = costs + gated_mlp_costs({hidden, config.shared_width});
  if (config.has_shared_gate) {
    costs.parameters += hidden;
    costs.saved += hidden;  // what the shared expert returns, before its gate
    costs.saved_selective += hidden;
  }
  return costs;
}

ExpertLayer::ExpertLayer(const LayerSite& site)
    : index_(site.index),
      hidden_(site.config.hidden_size),
      config_(site.config.experts),
      tp_(site.mesh),
      where_(site.mesh, config_.count, config_.width),
      routes_all_rows_(site.mesh.sizes().routes_all_rows) {
  const ExpertNames& names = config_.names;
  const auto name = [&](const std::string& tail) { return site.name(names.prefix + "." + tail); };
  Weights::Builder& builder = site.builder;
  // Each tensor-parallel rank routes rows of its own.
  const bool is_partial = !tp_.is_alone();
  builder.add_plain(router_EH_,
                    {{name(names.router + ".weight"), {config_.count, hidden_}, {}, is_partial}});
  if (config_.has_router_bias)
    builder.add(router_bias_E_, {{name(names.router + ".bias"), {config_.count}, {}, is_partial}});
  if (config_.has_selection_bias)
    builder.add_constant(selection_bias_E_, name(names.selection_bias), {config_.count});
  if (config_.are_in_turns) {
    add_experts_in_turns(site);
  } else if (config_.are_stacked) {
    add_stacked_experts(site);
  } else {
    add_experts(site);
  }
  if (config_.shared_width > 0) {
    shared_ = std::make_unique<GatedMlp>(site, names.prefix + "." + names.shared,
                                         GatedMlpShape{hidden_, config_.shared_width});
  }
  if (config_.has_shared_gate)
    builder.add_plain(shared_gate_1H_,
                      {{name(names.shared + "_gate.weight"), {1, hidden_}, {}, tp_.cuts_rows}});
}

void ExpertLayer::add_experts(const LayerSite& site) {
  const ExpertNames& names = config_.names;
  const bool is_own = !where_.is_alone();
  std::vector<Weights::Builder::Component> gate_up, down;
  for (int64_t e = where_.first; e < where_.first + where_.count; ++e) {
    const auto component = [&](const std::string& matrix, std::vector<int64_t> shape, int dim) {
      return Weights::Builder::Component{
          .name = site.name(fmt::format("{}.experts.{}.{}.weight", names.prefix, e, matrix)),
          .full_shape = std::move(shape),
          .slices = Slice{dim, where_.width_begin, where_.width_end},
          .is_of_own_expert = is_own};
    };
    gate_up.push_back(component(names.gate, {config_.width, hidden_}, 0));
    gate_up.push_back(component(names.up, {config_.width, hidden_}, 0));
    down.push_back(component(names.down, {hidden_, config_.width}, 1));
  }
  site.builder.add(stack_.gate_up, std::move(gate_up));
  site.builder.add(stack_.down, std::move(down));
}

/// All experts of a layer, which files have as one tensor. The rank has its own, and of each these slices.
Weights::Builder::Component ExpertLayer::stacked(const LayerSite& site, const char* tail,
                                                 std::vector<int64_t> shape,
                                                 std::vector<Slice> of_each, bool is_bias) const {
  of_each.insert(of_each.begin(), {0, where_.first, where_.first + where_.count});
  return {.name = site.name(config_.names.prefix + ".experts." + tail),
          .full_shape = std::move(shape),
          .slices = Slices(std::move(of_each)),
          .is_bias = is_bias,
          .is_of_own_expert = !where_.is_alone()};
}

void ExpertLayer::add_stacked_experts(const LayerSite& site) {
  const int64_t count = config_.count, width = config_.width, begin = where_.width_begin,
                end = where_.width_end;
  site.builder.add(stack_.gate_up, {stacked(site, "gate_up_proj", {count, 2 * width, hidden_},
                                            {{1, begin, end}, {1, width + begin, width + end}})});
  site.builder.add(stack_.down,
                   {stacked(site, "down_proj", {count, hidden_, width}, {{2, begin, end}})});
}

void ExpertLayer::add_experts_in_turns(const LayerSite& site) {
  const int64_t count = config_.count, width = config_.width, begin = where_.width_begin,
                end = where_.width_end;
  // What the slices return is summed: each rank adds the bias of some of its columns.
  const comm::Range biased = where_.share_of_outputs(hidden_);
  Weights::Builder& builder = site.builder;
  // Turned: blocks of their files are not those of outputs and inputs.
  builder.add_plain(stack_.gate_up, {stacked(site, "gate_up_proj", {count, hidden_, 2 * width},
                                             {{2, 2 * begin, 2 * end}})});
  builder.add(stack_.gate_up_bias, {stacked(site, "gate_up_proj_bias", {count, 2 * width},
                                            {{1, 2 * begin, 2 * end}}, true)});
  builder.add_plain(stack_.down,
                    {stacked(site, "down_proj", {count, width, hidden_}, {{1, begin, end}})});
  builder.add(stack_.down_bias, {stacked(site, "down_proj_bias", {count, hidden_},
                                         {{1, biased.begin, biased.end}}, true)});
  stack_.down_bias_begin = biased.begin;
  stack_.is_in_turns = true;
  stack_.swiglu_limit = config_.swiglu_limit;
}

Tensor ExpertLayer::forward(const Tensor& input_TH, RouterPass* routers) const {
  if (!routes_all_rows()) {
    const Tensor routed_TH = routed_on_ranks(input_TH, routers);
    return shared_ ? routed_TH + gated_shared(input_TH, shared_->forward(input_TH, nullptr))
                   : routed_TH;
  }
  const Tensor routed_TH = routed(input_TH, routers);
  return layer_output(
      shared_ ? routed_TH + gated_shared(input_TH, shared_->partial(input_TH)) : routed_TH, tp_);
}

Tensor ExpertLayer::infer(const Tensor& input_TH, RouterPass* routers) const {
  if (!routes_all_rows() || tp_.cuts_rows) return forward(input_TH, routers);
  const Tensor routed_TH = inferred(input_TH, routers);
  return layer_output(
      shared_ ? routed_TH + gated_shared(input_TH, shared_->inferred_partial(input_TH)) : routed_TH,
      tp_);
}

/// Of a few rows, by kernels that do all of it.
std::optional<Tensor> ExpertLayer::routed_at_once(const Tensor& input_TH,
                                                  RouterPass* routers) const {
  if (!is_free(routers) || at::GradMode::is_enabled() || !is_one_operation()) return std::nullopt;
  const kernels::ExpertKernels* fused = kernels::expert_kernels_for(input_TH);
  const kernels::RoutedExperts experts = operation(routers);
  if (fused == nullptr || !fused->has_routed_experts(input_TH, experts)) return std::nullopt;
  return fused->routed_experts(input_TH, experts);
}

Tensor ExpertLayer::inferred(const Tensor& input_TH, RouterPass* routers) const {
  if (auto at_once_TH = routed_at_once(input_TH, routers)) return *at_once_TH;
  const Visits visits = visits_of(input_TH, routers);
  return kernels::inferred_experts(input_TH,
                                   kernels::group_by_expert(visits.expert_TK, config_.count),
                                   visits.weight_TK, stack_);
}

/// Of slices a part of the sum.
Tensor ExpertLayer::routed(const Tensor& input_TH, RouterPass* routers) const {
  if (routers == nullptr) {
    if (auto at_once_TH = routed_at_once(input_TH, routers)) return *at_once_TH;
  }
  const Visits visits = visits_of(input_TH, routers);
  return kernels::experts(input_TH, kernels::group_by_expert(visits.expert_TK, config_.count),
                          visits.weight_TK, stack_);
}

Tensor ExpertLayer::routed_on_ranks(const Tensor& input_LH, RouterPass* routers) const {
  const auto on_ranks = [&](const Tensor& own_LH) {
    const Visits visits = visits_of(own_LH, routers);
    return distributed_experts(own_LH, visits.expert_TK, visits.weight_TK, stack_, where_);
  };
  const int64_t rows = input_LH.size(0);
  if (!tp_.cuts_rows) {
    const RowShares shares = equal_rows(rows, tp_.ranks);
    return joined_rows(on_ranks(own_rows(input_LH, shares)), shares);
  }
  // The last ranks may have rows that are padding, which routers are not asked about.
  const int64_t asked = routers == nullptr ? rows : routers->num_rows;
  const Tensor output_LH = on_ranks(first_rows(input_LH, asked));
  return asked == rows ? output_LH : at::constant_pad_nd(output_LH, {0, 0, 0, rows - asked});
}

ExpertLayer::Visits ExpertLayer::visits_of(const Tensor& input_TH, RouterPass* routers) const {
  if (is_in_training_arithmetic(input_TH)) return exact_visits(input_TH, routers);
  Tensor given_TK;
  if (!is_free(routers)) given_TK = routers->given_YTK[index_];
  const Routing routing =
      route(router_logits(input_TH, routers), config_, selection_bias_E_, given_TK);
  if (routers != nullptr && routers->made_YTK.defined())
    routers->made_YTK[index_].copy_(routing.expert_TK);
  return {routing.expert_TK, routing.weight_TK};
}

/// Choices and weights by one kernel for engine and trainer, for any number of rows.
ExpertLayer::Visits ExpertLayer::exact_visits(const Tensor& input_TH, RouterPass* routers) const {
  check(is_free(routers) && is_one_operation(),
        "--true-on-policy was refused where routers have no training arithmetic");
  const kernels::RouterChoices choices = exact_choices(input_TH, operation(routers));
  const Tensor expert_TK = choices.expert_TK.to(at::kLong);
  return {expert_TK, exact_value(choices.weight_TK, [&] {
            return weights_of_visits(router_logits(input_TH, routers), config_, expert_TK);
          })};
}

/// With the gradients of router losses, where they are on.
Tensor ExpertLayer::router_logits(const Tensor& input_TH, RouterPass* routers) const {
  const Tensor logits_TE = kernels::linear(wide(input_TH), router_EH_, router_bias_E_);
  return routers != nullptr && routers->losses.is_on() && at::GradMode::is_enabled()
             ? with_router_losses(logits_TE, config_, *routers, index_)
             : logits_TE;
}

/// Whether operation() says all of what the router and the experts do.
bool ExpertLayer::is_one_operation() const {
  const bool has_adapters = router_EH_.matrix.adapters != nullptr ||
                            stack_.gate_up.matrix.adapters != nullptr ||
                            stack_.down.matrix.adapters != nullptr;
  return routes_all_rows() && config_.has_one_choice() && !has_adapters;
}

kernels::RoutedExperts ExpertLayer::operation(RouterPass* routers) const {
  kernels::RoutedExperts experts;
  experts.router_EH = router_EH_.matrix;
  experts.selection_bias_E = selection_bias_E_;
  experts.rule = {config_.per_token, config_.score == RouterScore::kSigmoid, config_.normalizes,
                  config_.scaling};
  experts.gate_up = stack_.gate_up.matrix.stacked(where_.count);
  experts.down = stack_.down.matrix.stacked(where_.count);
  if (routers != nullptr && routers->made_YTK.defined())
    experts.chosen_TK = routers->made_YTK[index_];
  return experts;
}

std::optional<kernels::RoutedExperts> ExpertLayer::routed_experts(RouterPass* routers) const {
  if (!is_one_operation() || shared_gate_1H_.defined()) return std::nullopt;
  kernels::RoutedExperts experts = operation(routers);
  if (shared_ == nullptr) return experts;
  const Products* products = shared_->gated_products();
  if (products == nullptr || products->first.bias_O.defined()) return std::nullopt;
  experts.shared_gate_up = products->first.weight_OI.matrix;
  experts.shared_down = products->last.weight_OI.matrix;
  return experts;
}

Tensor ExpertLayer::gated_shared(const Tensor& input_TH, const Tensor& output_TH) const {
  if (!shared_gate_1H_.defined()) return output_TH;
  return (wide(output_TH) * shared_gate(input_TH)).to(output_TH.scalar_type());
}

/// [T, 1]. In training arithmetic it is a router of one expert, whose weight is its score.
Tensor ExpertLayer::shared_gate(const Tensor& input_TH) const {
  const auto computed = [&] { return kernels::linear(wide(input_TH), shared_gate_1H_).sigmoid(); };
  if (!is_in_training_arithmetic(input_TH)) return computed();
  kernels::RoutedExperts router;
  router.router_EH = shared_gate_1H_.matrix;
  router.rule.is_sigmoid = true;
  return exact_value(exact_choices(input_TH, router).weight_TK, computed);
}

Costs ExpertLayer::costs() const {
  Costs costs = expert_costs(hidden_, config_);
  if (where_.ep.is_alone()) return costs;
  const int64_t arrived = config_.per_token * hidden_;  // rows of other ranks are kept
  costs.saved += arrived;
  costs.saved_selective += arrived;
  return costs;
}

std::string ExpertLayer::describe() const {
  std::string text =
      fmt::format("{} of {} experts {}", config_.per_token, config_.count, config_.width);
  if (config_.shared_width > 0) text += fmt::format(", shared {}", config_.shared_width);
  return text;
}

std::unique_ptr<FeedForward> make_experts_or_mlp(const LayerSite& site) {
  if (site.config.experts.are_in(site.index)) return std::make_unique<ExpertLayer>(site);
  return make_gated_mlp(site);
}

}  // namespace slime::model
