#pragma once

/// Memory needs of a run on one device, from its flags and its model.

#include "config/run_config.h"
#include "estimate/memory_plan.h"
#include "model/network.h"
#include "train/trainer.h"

namespace slime::estimate {

/// Of the process of the loop. `network` is what its engine has, the whole model or slices in an engine of
/// several ranks; `trained` what this rank trains where that is another network, otherwise the same. `trainer`: null where nothing is trained. `layout`: of the ranks that train. `longest_prompt`: tokens; 0
/// when that is not known, then the model's longest context counts.
MemoryNeeds memory_needs(const config::RunConfig& config, model::Network& network,
                         model::Network& trained, const model::Precision& precision,
                         const train::TrainConfig* trainer, const comm::ParallelLayout& layout,
                         bool has_engine, int64_t longest_prompt);

/// Of an engine in a process of its own.
MemoryNeeds engine_memory_needs(const config::RunConfig& config, model::Network& network,
                                const model::Precision& precision, int64_t longest_prompt);

}  // namespace slime::estimate
