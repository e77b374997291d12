#pragma once

/// Engines in processes of their own, this run's or others', from the flags of a run.

#include <filesystem>

#include "cluster/placement.h"
#include "config/run_config.h"
#include "roles/engine_workers.h"
#include "roles/external_engines.h"

namespace slime::roles {

EngineWorkersConfig engine_workers_config(const config::RunConfig& config, EngineStart start,
                                          const std::filesystem::path& log_folder,
                                          engine::RunningRequests running,
                                          const cluster::Placement& placement);

/// Throws ConfigError for an address that is none.
/// Of a run with --rollout-session-id.
KeptEnginesConfig kept_engines_config(const config::RunConfig& config);

ExternalEnginesConfig external_engines_config(const config::RunConfig& config);

}  // namespace slime::roles
