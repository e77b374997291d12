#pragma once

/// What a step of a run consists of: the verbs that the loops put into their orders.

#include <cstdint>
#include <vector>

#include "core/sample.h"
#include "loop/group_source.h"
#include "train/trainer.h"

namespace slime::loop {

struct Stations;

/// The groups of step `step`. Throws ConfigError when the data has ended.
Collected collect(Stations& run, int64_t step);

/// Engines stand still, the trainers have the device.
train::TrainReport train_on(Stations& run, const std::vector<Group>& groups);

/// The new weights to the engines, which go on. In asynchronous runs what is under way does what
/// --update-mode says.
void publish(Stations& run, WeightVersion version);

/// All evaluation sets with the weights as they are, for the metrics of step `step`.
void evaluate(Stations& run, int64_t step);

}  // namespace slime::loop
