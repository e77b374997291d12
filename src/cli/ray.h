#pragma once

/// A run on a Ray cluster: this process becomes Ray's driver (python/slime/ray_cluster.py), which asks for
/// the devices and starts `slime train` on each host that gets some, as any other launcher would.

#include <span>
#include <string>

#include "config/run_config.h"

namespace slime::cli {

/// `launcher`: of --launcher. With auto, where RAY_ADDRESS is set, as it is in a job.
bool is_ray_wanted(const std::string& launcher);

/// Does not return. `arguments`: of `slime train`. Throws ConfigError when there is no Python to run, or not the
/// script.
[[noreturn]] void become_ray_launcher(const config::RunConfig& config,
                                      std::span<const std::string> arguments);

}  // namespace slime::cli
