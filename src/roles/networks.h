#pragma once

/// The networks of a run besides the trained one, and which of its weights stay as they are: what
/// every rank builds for itself from the same flags.

#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/run_config.h"
#include "model/config.h"
#include "model/weights.h"
#include "train/trainer.h"

namespace slime::roles {

/// Names of the weights that --only-train-params-name-list or --freeze-params-name-list leave
/// alone, of those that this rank of `mesh` has. Throws ConfigError for an expression that is wrong or
/// matches nothing (on a pipeline stage it may match other stages' alone).
std::vector<std::string> frozen_names(const config::RunConfig& config,
                                      const model::Weights& weights, const comm::Mesh& mesh);

/// Throws ConfigError as frozen_names() does, for the weights of a model that is not loaded.
void check_weight_lists(const config::RunConfig& config, const model::ModelConfig& model);

/// The companions of `trained`, which outlives them, that the algorithm asks for.
train::OtherNetworks load_other_networks(const config::RunConfig& config, model::Network& trained,
                                         const model::Precision& precision, const comm::Mesh& mesh);

/// Of the matrices of the networks that this run's engines compute with.
kernels::MatrixFormat engine_matrices(const config::RunConfig& config);
/// Of those networks. Opens the GPU.
model::Precision engine_precision(const config::RunConfig& config);

/// A network of the same shape with zeros for weights, which updates of the weights fill, and with what
/// those do not know: the constants of `network`.
std::unique_ptr<model::Network> make_blank_copy(model::Network& network,
                                                const model::Precision& precision);

}  // namespace slime::roles
