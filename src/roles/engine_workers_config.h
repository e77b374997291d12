#pragma once

/// Engines in processes of their own, from the flags of a run.

#include <filesystem>

#include "cluster/placement.h"
#include "config/run_config.h"
#include "roles/engine_workers.h"

namespace slime::roles {

EngineWorkersConfig engine_workers_config(const config::RunConfig& config, EngineStart start,
                                          const std::filesystem::path& log_folder,
                                          engine::RunningRequests running,
                                          const cluster::Placement& placement);

}  // namespace slime::roles
