#pragma once

/// How long new weights take from ranks that train parts of a model to engines of the whole model on
/// the same GPUs (sync/reshard.h).

#include <string>

#include "bench/made_up_model.h"
#include "bench/rank_processes.h"

namespace slime::bench {

struct ReshardOptions {
  std::string name;
  ShapeOptions shape;
  int repeats = 5;  // behind the first
  RankOptions ranks;
};

/// Prints a JSON line at rank 0: milliseconds of the fastest and of the median update, what each rank gets, and
/// how long that takes at the rate at which two GPUs copy to one another here.
void measure_reshard(const ReshardOptions& options);

}  // namespace slime::bench
