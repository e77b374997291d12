#pragma once

/// Choices about evaluation that follow from the flags alone.

#include <cstdint>

#include "config/run_config.h"

namespace slime::setup {

/// Whether evaluations run on an engine of their own while training goes on: the run's engines have
/// weights of their own, it has evaluations, and no user function generates (those know one engine,
/// the run's).
bool evaluates_beside(const config::RunConfig& config);

/// Samples of an evaluation that are generated at the same time.
int64_t evaluation_requests(const config::RunConfig& config);

}  // namespace slime::setup
