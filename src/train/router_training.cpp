#include "train/router_training.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "comm/ordered_sum.h"

namespace slime::train {
namespace {

std::span<const double> numbers_of(const Tensor& x) {
  return {x.const_data_ptr<double>(), static_cast<std::size_t>(x.numel())};
}

}  // namespace

RouterSums router_sums(std::span<const RoutingOfPass> passes, const model::ModelConfig& model,
                       const comm::Mesh& mesh) {
  const model::ExpertsConfig& experts = model.experts;
  Tensor own = at::zeros({model.num_layers, experts.count + 2}, at::kDouble);
  for (const RoutingOfPass& pass : passes) {
    const Tensor count = pass.count_L.to(at::kDouble).repeat_interleave(experts.per_token);
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      // -1 in layers of another stage: one more place than there are experts.
      const Tensor visits =
          at::bincount(pass.made_YLK[layer].flatten().to(at::kLong) + 1, count, experts.count + 1);
      own[layer].narrow(0, 0, experts.count).add_(visits.narrow(0, 1, experts.count).cpu());
    }
    own.narrow(1, experts.count, 2).add_(pass.terms_Y2.cpu());
  }
  const std::vector<double> all =
      comm::sum(mesh.world(), numbers_of(own), "visits of experts in the step");
  const Tensor sums = at::tensor(all, at::kDouble).view(own.sizes());
  RouterSums out;
  out.visits_YE = sums.narrow(1, 0, experts.count).contiguous();
  out.terms_Y2 = sums.narrow(1, experts.count, 2).contiguous();
  return out;
}

std::map<std::string, double> router_metrics(const RouterSums& sums,
                                             const model::ModelConfig& model,
                                             const model::RouterLosses& losses,
                                             int64_t num_micro_batches) {
  double worst = 0, total = 0, unvisited = 0, terms[2] = {};
  int64_t layers = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (!model.experts.are_in(layer)) continue;
    const Tensor visits_E = sums.visits_YE[layer];
    const double mean = visits_E.mean().item<double>();
    if (mean == 0) continue;
    const double most = visits_E.max().item<double>() / mean;
    worst = std::max(worst, most);
    total += most;
    unvisited += (visits_E == 0).sum().item<double>();
    for (int i = 0; i < 2; ++i) terms[i] += sums.terms_Y2[layer][i].item<double>();
    ++layers;
  }
  if (layers == 0) return {};
  std::map<std::string, double> metrics{{"train/moe_load_max", worst},
                                        {"train/moe_load_max_mean", total / layers},
                                        {"train/moe_experts_unvisited", unvisited}};
  const auto parts = static_cast<double>(layers * num_micro_batches);
  if (losses.balance_coef != 0) metrics["train/load_balancing_loss"] = terms[0] / parts;
  if (losses.z_coef != 0) metrics["train/z_loss"] = terms[1] / parts;
  return metrics;
}

void update_selection_biases(model::Weights& weights, const model::ModelConfig& model,
                             const Tensor& visits_YE, double rate) {
  const at::NoGradGuard no_grad;
  const model::ExpertNames& names = model.experts.names;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string name =
        fmt::format("model.layers.{}.{}.{}", layer, names.prefix, names.selection_bias);
    for (const model::NamedConstant& constant : weights.constants()) {
      if (constant.name != name) continue;
      const Tensor visits_E = visits_YE[layer];
      const Tensor step_E = (visits_E.mean() - visits_E).sign() * rate;
      Tensor bias_E = constant.value;
      bias_E.add_(step_E.to(bias_E.options()));
    }
  }
}

}  // namespace slime::train
