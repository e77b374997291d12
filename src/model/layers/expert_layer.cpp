#include "model/layers/expert_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "core/error.h"
#include "kernels/linear.h"
#include "model/layers/router.h"
#include "model/layers/router_losses.h"
#include "model/router_pass.h"

namespace slime::model {
namespace {

/// Scores, routers' products and weights of visits have this precision.
Tensor wide(const Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

void check_supported(const LayerSite& site) {
  const int64_t count = site.config.experts.count;
  if (site.mesh.sizes().tp > 1) {
    throw ConfigError(
        fmt::format("layer {} has {} experts, which tensor parallelism does not slice yet: use "
                    "tensor parallelism of 1",
                    site.index, count));
  }
  if (site.config.experts.are_in_turns && site.rotary.cos_PR.is_cuda()) {
    throw ConfigError(
        fmt::format("layer {} has {} experts whose gates and ups are in turns, which are computed "
                    "on the CPU only so far: use device cpu",
                    site.index, count));
  }
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
    : index_(site.index), hidden_(site.config.hidden_size), config_(site.config.experts) {
  check_supported(site);
  const ExpertNames& names = config_.names;
  const auto name = [&](const std::string& tail) { return site.name(names.prefix + "." + tail); };
  Weights::Builder& builder = site.builder;
  builder.add(router_EH_, {{name(names.router + ".weight"), {config_.count, hidden_}, {}}});
  if (config_.has_router_bias)
    builder.add(router_bias_E_, {{name(names.router + ".bias"), {config_.count}, {}}});
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
    builder.add(shared_gate_1H_, {{name(names.shared + "_gate.weight"), {1, hidden_}, {}}});
}

void ExpertLayer::add_experts(const LayerSite& site) {
  const ExpertNames& names = config_.names;
  std::vector<Weights::Builder::Component> gate_up, down;
  for (int64_t e = 0; e < config_.count; ++e) {
    const auto of_expert = [&](const std::string& matrix) {
      return site.name(fmt::format("{}.experts.{}.{}.weight", names.prefix, e, matrix));
    };
    gate_up.push_back({of_expert(names.gate), {config_.width, hidden_}, {}});
    gate_up.push_back({of_expert(names.up), {config_.width, hidden_}, {}});
    down.push_back({of_expert(names.down), {hidden_, config_.width}, {}});
  }
  site.builder.add(stack_.gate_up, std::move(gate_up));
  site.builder.add(stack_.down, std::move(down));
}

void ExpertLayer::add_stacked_experts(const LayerSite& site) {
  const int64_t count = config_.count, width = config_.width;
  const auto name = [&](const char* tail) {
    return site.name(config_.names.prefix + ".experts." + tail);
  };
  site.builder.add(stack_.gate_up, {{name("gate_up_proj"), {count, 2 * width, hidden_}, {}}});
  site.builder.add(stack_.down, {{name("down_proj"), {count, hidden_, width}, {}}});
}

void ExpertLayer::add_experts_in_turns(const LayerSite& site) {
  const int64_t count = config_.count, width = config_.width;
  const auto name = [&](const char* tail) {
    return site.name(config_.names.prefix + ".experts." + tail);
  };
  Weights::Builder& builder = site.builder;
  builder.add(stack_.gate_up, {{name("gate_up_proj"), {count, hidden_, 2 * width}, {}}});
  builder.add(stack_.gate_up_bias, {{.name = name("gate_up_proj_bias"),
                                     .full_shape = {count, 2 * width},
                                     .slice = {},
                                     .is_bias = true}});
  builder.add(stack_.down, {{name("down_proj"), {count, width, hidden_}, {}}});
  builder.add(stack_.down_bias, {{.name = name("down_proj_bias"),
                                  .full_shape = {count, hidden_},
                                  .slice = {},
                                  .is_bias = true}});
  stack_.is_in_turns = true;
  stack_.swiglu_limit = config_.swiglu_limit;
}

Tensor ExpertLayer::forward(const Tensor& input_TH, RouterPass* routers) const {
  const Tensor routed_TH = routed(input_TH, routers);
  return shared_ ? routed_TH + shared(input_TH) : routed_TH;
}

Tensor ExpertLayer::routed(const Tensor& input_TH, RouterPass* routers) const {
  if (routers == nullptr && !at::GradMode::is_enabled() && is_one_operation()) {
    const kernels::ExpertKernels* fused = kernels::expert_kernels_for(input_TH);
    if (fused != nullptr && fused->has_routed_experts(input_TH, operation()))
      return fused->routed_experts(input_TH, operation());
  }
  Tensor logits_TE = kernels::linear(wide(input_TH), router_EH_, router_bias_E_);
  Tensor given_TK;
  if (routers != nullptr) {
    if (routers->losses.is_on() && at::GradMode::is_enabled())
      logits_TE = with_router_losses(logits_TE, config_, *routers, index_);
    if (routers->given_YTK.defined()) given_TK = routers->given_YTK[index_];
  }
  const Routing routing = route(logits_TE, config_, selection_bias_E_, given_TK);
  if (routers != nullptr && routers->made_YTK.defined())
    routers->made_YTK[index_].copy_(routing.expert_TK);
  return kernels::experts(input_TH, kernels::group_by_expert(routing.expert_TK, config_.count),
                          routing.weight_TK, stack_);
}

/// Whether operation() says all of what the router and the experts do.
bool ExpertLayer::is_one_operation() const {
  return !config_.are_in_turns && !config_.has_router_bias && config_.num_groups == 1;
}

kernels::RoutedExperts ExpertLayer::operation() const {
  return {router_EH_.value,
          selection_bias_E_,
          {config_.per_token, config_.score == RouterScore::kSigmoid, config_.normalizes,
           config_.scaling},
          stack_.gate_up.value.view({-1, hidden_}),
          stack_.down.value.view({-1, config_.width})};
}

std::optional<kernels::RoutedExperts> ExpertLayer::routed_experts() const {
  if (!is_one_operation() || shared_ != nullptr) return std::nullopt;
  return operation();
}

Tensor ExpertLayer::shared(const Tensor& input_TH) const {
  const Tensor output_TH = shared_->forward(input_TH, nullptr);
  if (!shared_gate_1H_.defined()) return output_TH;
  const Tensor gate_T1 = kernels::linear(wide(input_TH), shared_gate_1H_).sigmoid();
  return (wide(output_TH) * gate_T1).to(output_TH.scalar_type());
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
