#pragma once

/// The checks of a run's start that bound what its plan proposes: how engines and trainers divide the model.

#include "config/run_config.h"
#include "estimate/plan.h"

namespace slime::cli {

/// `plan` knows its model, and where engines and trainers are.
void add_run_checks(const config::RunConfig& config, estimate::PlanConfig& plan);

}  // namespace slime::cli
