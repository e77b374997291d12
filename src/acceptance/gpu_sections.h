#pragma once

/// Sections of `slime check` that only a GPU has. It is open.

#include "acceptance/comparison.h"
#include "kernels/gpu/gpu.h"

namespace slime::acceptance {

/// Recordings beside the same kernels launched one by one, and an engine with recorded steps beside one without.
void compare_recordings(const Side& side, kernels::Gpu& gpu, const Tell& tell);

/// Memory that is unmapped, or freed by tensors, comes back to the driver.
void check_returned_memory(const Side& side, kernels::Gpu& gpu, const Tell& tell);

/// Description of the GPU, for the head of the report.
void describe_gpu(const kernels::Gpu& gpu, const Tell& tell);

}  // namespace slime::acceptance
