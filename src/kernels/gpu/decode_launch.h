#pragma once

/// Copies of attention plans on the device, for callers without a staging buffer of their
/// own (tests, measurements); the engine has engine/step_block.h.

#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/paged_units.h"

namespace slime::kernels {

DecodeLaunch to_launch(const DecodePlan& plan, at::Device device);
/// `rows`: of the step, those that are real.
TileLaunch to_launch(const UnitPlan& plan, int64_t rows, at::Device device);

}  // namespace slime::kernels
