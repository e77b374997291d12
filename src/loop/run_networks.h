#pragma once

/// The networks of a run and its trainers: what is in this process, and what in workers.

#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "loop/stations.h"
#include "roles/trainers_apart.h"

namespace slime::loop {

bool trains(const config::RunConfig& config);

/// Each rank that trains has a process of its own, and this one computes nothing: as soon as there is
/// a second process, but for a rank that is alone on its GPU beside engines on others, whose new weights
/// go from device to device.
bool trains_apart(const config::RunConfig& config);

/// Threads of the CPU for everybody, while nobody has been given a part of them.
int64_t cores_of(const config::RunConfig& config);

/// Where the weights are with which the run goes on.
std::string weights_directory(const Stations& run);

/// The whole model with those weights, in this process while ranks train elsewhere.
std::unique_ptr<model::Network> load_on_host(const Stations& run);

/// The trained network, its trainers, and the plan of who gets the device's memory; `notes` get what
/// there is to tell. Returns the trainers where they are workers, otherwise null. Throws ConfigError,
/// cluster::WorkerFailure.
roles::TrainersApart* load_networks(Stations& run, std::vector<std::string>& notes);

}  // namespace slime::loop
