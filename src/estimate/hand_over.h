#pragma once

/// New weights on their way from trainers to engines: bytes and seconds, a prediction.

#include <cstdint>

#include "estimate/collectives.h"

namespace slime::estimate {

struct Engines {
  int64_t devices = 0;       // of all engines
  int64_t per_engine = 1;    // tensor parallel
  bool are_apart = false;    // they have devices of their own
  bool in_turns = true;      // those that have not: they generate while nothing trains
  bool cross_hosts = false;  // an engine's weights come from other hosts
};

/// What an engine's device receives in an update: its slices, less what the same device holds as a
/// trainer; of a run of adapters these alone. Nothing moves where trainer and engine divide the model alike on the same devices.
Collective hand_over(const ModelShape& shape, const comm::ParallelLayout& layout,
                     const Engines& engines, const Rates& rates);

}  // namespace slime::estimate
