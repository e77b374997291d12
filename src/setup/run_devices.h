#pragma once

/// The GPUs of a run: how many it needs, and which one each of its processes gets.

#include <vector>

#include "cluster/placement.h"
#include "config/run_config.h"

namespace slime::setup {

/// Trainer ranks and engines in processes of their own have a device each.
int devices_needed(const config::RunConfig& config);

/// What a run is on, and why: "on the CPU: no NVIDIA GPU is visible (--device auto)". Where
/// --device is auto, it becomes cpu or cuda, never hip. Before validation.
std::string choose_device(config::RunConfig& config);

/// Those that generate: what rates "per GPU" of the rollout are divided by. On the CPU the places that
/// engines have stand for them.
int64_t num_rollout_devices(const config::RunConfig& config);

/// Throws ConfigError when a run on GPUs needs more of them than this process sees.
void check_devices(const config::RunConfig& config);
/// The same with the number of devices given.
void check_devices(const config::RunConfig& config, int num_visible);

/// How many places each node of a run on several hosts has to give; where the flags do not say how many
/// a node has, as many as there are ranks on one (--actor-num-gpus-per-node).
std::vector<int> places_of_nodes(const config::RunConfig& config);
/// How many nodes that are, where one shows `num_visible` GPUs; 0: as above.
int nodes_needed(const config::RunConfig& config, int num_visible);

/// Who is where on so many nodes, with as many places as the flags or, on GPUs, `num_visible` say; on
/// one node there is room for all. Throws ConfigError where there is not.
cluster::Placement place_workers(const config::RunConfig& config, int num_nodes, int num_visible);

}  // namespace slime::setup
