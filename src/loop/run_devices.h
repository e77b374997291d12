#pragma once

/// The GPUs of a run: how many it needs, and which one each of its processes gets.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace slime::loop {

/// Trainer ranks and engines in processes of their own have a device each.
int devices_needed(const config::RunConfig& config);

/// Throws ConfigError when a run on GPUs needs more of them than this process sees.
void check_devices(const config::RunConfig& config);
/// The same with the number of devices given.
void check_devices(const config::RunConfig& config, int num_visible);

/// CUDA_VISIBLE_DEVICES of the trainer rank or engine in a process of its own; empty for a run on the
/// CPU: as this process's.
std::vector<std::string> visible_devices_of_rank(const config::RunConfig& config, int rank);
std::vector<std::string> visible_devices_of_engine(const config::RunConfig& config, int engine);

}  // namespace slime::loop
