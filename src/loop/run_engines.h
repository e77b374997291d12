#pragma once

/// The engines of a run: those of this process, of the ranks, or of workers.

#include "loop/stations.h"
#include "roles/trainers_apart.h"

namespace slime::loop {

/// Of the CPU between engines and trainer, who gets what the engines leave; before the first kernel runs.
void share_out_threads(Stations& run);

/// Starts the engines that the flags ask for, over the networks of load_networks() and of memory as it was
/// planned (over the ranks of `apart`, where those have them; null: they are not workers); or, where engines outlived trainers that were lost, gives them the weights with which those
/// begin. Throws ConfigError when one does not start.
void start_engines(Stations& run, roles::TrainersApart* apart);

}  // namespace slime::loop
