#pragma once

/// The networks of a run besides the trained one, and which of its weights stay as they are: what
/// every rank builds for itself from the same flags.

#include <string>
#include <vector>

#include "config/run_config.h"
#include "model/weights.h"
#include "train/trainer.h"

namespace slime::loop {

/// Names of the weights that --only-train-params-name-list or --freeze-params-name-list leave
/// alone. Throws ConfigError for an expression that is wrong or matches nothing.
std::vector<std::string> frozen_names(const config::RunConfig& config,
                                      const model::Weights& weights);

/// The trained network's companions that the algorithm asks for.
train::OtherNetworks load_other_networks(const config::RunConfig& config,
                                         const model::Precision& precision);

}  // namespace slime::loop
