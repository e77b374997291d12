#pragma once

/// What each device holds, in bytes: a trainer rank by its pipeline stage, and an engine's rank.

#include <cstdint>
#include <vector>

#include "comm/parallel_layout.h"
#include "estimate/model_shape.h"
#include "estimate/workload.h"

namespace slime::estimate {

struct StageMemory {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  double weights = 0;      // bfloat16
  double gradients = 0;    // float32
  double optimizer = 0;    // master weights and both moments, the shard of a rank
  double reference = 0;    // frozen weights beside them
  double activations = 0;  // of the micro-batches under way
  double logits = 0;

  double total() const {
    return weights + gradients + optimizer + reference + activations + logits;
  }
};

/// Of the ranks of each pipeline stage, in order.
std::vector<StageMemory> trainer_memory(const ModelShape& shape, const comm::ParallelLayout& layout,
                                        const Workload& workload);

struct EngineMemory {
  double weights = 0;
  double staged = 0;           // the second buffer for new weights, of engines apart
  double keys_and_values = 0;  // what is left
  double tokens = 0;           // that these hold, over all devices of the engine
};

/// `tp` devices of one engine, `bytes` of each for it. `is_apart`: it has a device of its own and
/// gets weights while it generates. `request_tokens`: of a request in the mean; its keys and values
/// behind a window are given back.
EngineMemory engine_memory(const ModelShape& shape, int64_t tp, double bytes, bool is_apart,
                           int64_t request_tokens);

/// How many micro-batches a pipeline takes in a step.
int64_t num_micro_batches(const comm::ParallelLayout& layout, const Workload& workload);

}  // namespace slime::estimate
