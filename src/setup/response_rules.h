#pragma once

/// Sampling parameters and limits of a run's responses, by its flags.

#include "config/eval_config.h"
#include "config/run_config.h"
#include "rollout/rollout.h"

namespace slime::setup {

/// Of responses that are trained on.
rollout::ResponseRules training_rules(const config::RunConfig& config);

/// Of one evaluation data set.
rollout::ResponseRules evaluation_rules(const config::EvalSetConfig& set,
                                        const config::RunConfig& config);

}  // namespace slime::setup
