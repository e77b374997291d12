#pragma once

/// Router load balancing in training: metrics of the load of experts, and selection biases that
/// follow it (arXiv 2408.15664).
///
/// Dimensions: Y layers of the whole model, E experts.

#include <map>
#include <span>
#include <string>

#include "comm/mesh.h"
#include "model/network.h"
#include "train/pass.h"

namespace slime::train {

/// Of all ranks and micro-batches of a step.
struct RouterSums {
  Tensor visits_YE;  // float64; a row that sequences share counts for each
  Tensor terms_Y2;   // float64: the sums of model::RouterPass::terms_Y2
};

/// All ranks call it. `passes`: of this rank's micro-batches.
RouterSums router_sums(std::span<const RoutingOfPass> passes, const model::ModelConfig& model,
                       const comm::Mesh& mesh);

/// train/moe_load_max: visits of the most visited expert by those of an average one, in the layer
/// where that is most; train/moe_load_max_mean: the mean over the layers;
/// train/moe_experts_unvisited: experts without a visit, of all layers. With losses, as Megatron
/// reports them: train/load_balancing_loss, train/z_loss, means over micro-batches and layers.
std::map<std::string, double> router_metrics(const RouterSums& sums,
                                             const model::ModelConfig& model,
                                             const model::RouterLosses& losses,
                                             int64_t num_micro_batches);

/// Experts that had fewer visits than the average of their layer get `rate` more, the others less.
void update_selection_biases(model::Weights& weights, const model::ModelConfig& model,
                             const Tensor& visits_YE, double rate);

}  // namespace slime::train
