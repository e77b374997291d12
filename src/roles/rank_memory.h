#pragma once

/// Memory plan of a rank's worker: what trains there, and its engine where it has one.

#include "comm/mesh.h"
#include "config/run_config.h"
#include "estimate/memory_plan.h"
#include "model/network.h"
#include "train/trainer.h"

namespace slime::roles {

/// `trained`: what the rank trains; `engine`: what its engine holds of the model, which may be the
/// same, or null where it has none. `longest_prompt`: tokens; 0: not known.
estimate::MemoryNeeds rank_memory_needs(const config::RunConfig& config, model::Network& trained,
                                        model::Network* engine, const model::Precision& precision,
                                        const train::TrainConfig& trainer, int64_t longest_prompt);

}  // namespace slime::roles
