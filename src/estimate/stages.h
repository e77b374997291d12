#pragma once

/// Memory of the ranks of each pipeline stage in a layout, and of an engine's devices.

#include <cstdint>
#include <vector>

#include "comm/parallel_layout.h"
#include "estimate/model_shape.h"
#include "estimate/trainer_memory.h"
#include "estimate/workload.h"

namespace slime::estimate {

struct Stage {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  TrainerMemory memory;
};

/// A rank of pipeline stage `stage`.
TrainerRank rank_of(const ModelShape& shape, const comm::ParallelLayout& layout,
                    const Workload& workload, int stage);

/// The stages, in order.
std::vector<Stage> stages_of(const ModelShape& shape, const comm::ParallelLayout& layout,
                             const Workload& workload);

/// Place of an engine, and the way of new weights to it.
enum class EnginePlace {
  kInTurns,  // on a trainer's device, which it has while nothing trains
  kBeside,   // on a trainer's device, with weights of its own, which it gets while it generates
  kApart,    // on a device of its own, the same
};

struct EngineMemory {  // of a device, in bytes
  int64_t weights = 0;
  int64_t drafts = 0;  // of the weights: those of draft layers and models
  int64_t staged = 0;  // the second buffer for new weights: of engines not in turns, or with codes
  int64_t keys_and_values = 0;  // what is left
  double tokens = 0;            // that these hold, over all devices of the engine
};

/// Of the weights of a whole engine.
double engine_weight_bytes(const ModelShape& shape);
/// Weights of one of `tp` devices of an engine, and what of them is of drafts.
EngineMemory engine_weights(const ModelShape& shape, int64_t tp, EnginePlace place);

/// `tp` devices of one engine, `bytes` of each for it. `request_tokens`: of a request in the mean; keys and values
/// that left its windows are freed.
EngineMemory engine_memory(const ModelShape& shape, int64_t tp, int64_t bytes, EnginePlace place,
                           int64_t request_tokens);

/// How many micro-batches a pipeline takes in a step.
int64_t num_micro_batches(const comm::ParallelLayout& layout, const Workload& workload);

}  // namespace slime::estimate
