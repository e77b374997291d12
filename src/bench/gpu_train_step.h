#pragma once

/// A training step of GRPO on the GPU: packed forward, loss, backward, clipping, AdamW, in a shape
/// of bench/gpu/workloads.json.

#include <cstdint>
#include <string>

#include "bench/made_up_model.h"

namespace slime::bench {

struct GpuTrainOptions {
  std::string name;  // of the printed line
  ShapeOptions shape;
  model::Recompute recompute = model::Recompute::kNone;
  int64_t sequences = 8;
  int64_t sequence_length = 2048;
  int64_t micro_batch_tokens = 16384;
  int repeats = 5;  // the median counts
  bool state_on_host = false;
};

/// Prints one JSON line: TFLOP/s, the matrix limit, milliseconds of step, forward and gradient.
void measure_gpu_train_step(const GpuTrainOptions& options);

}  // namespace slime::bench
