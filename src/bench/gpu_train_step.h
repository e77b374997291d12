#pragma once

/// A training step of GRPO on the GPU, or on several of them: packed forward, loss, backward,
/// clipping, AdamW, in a shape of bench/gpu/workloads.json.

#include <cstdint>
#include <string>

#include "bench/made_up_model.h"
#include "bench/rank_processes.h"

namespace slime::bench {

struct GpuTrainOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
  model::Recompute recompute = model::Recompute::kNone;
  int64_t sequences = 8;  // for each device
  int64_t sequence_length = 2048;
  int64_t micro_batch_tokens = 16384;
  int repeats = 5;  // the median counts
  bool state_on_host = false;
  bool has_profile = false;  // what fills a step (bench/device_profile.h), a line of each rank
  RankOptions ranks;
};

/// Prints one JSON line: TFLOP/s of a device, the matrix limit, milliseconds of step, forward and
/// gradient; on several devices also the shares of a step that rank 0's collectives were in their
/// streams, by what they are for.
void measure_gpu_train_step(const GpuTrainOptions& options);

}  // namespace slime::bench
