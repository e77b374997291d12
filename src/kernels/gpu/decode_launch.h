#pragma once

/// Copies a plan of decode attention to the device, for callers without a staging buffer of their
/// own (tests, measurements); the engine has engine/step_block.h.

#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {

DecodeLaunch to_launch(const DecodePlan& plan, at::Device device);

}  // namespace slime::kernels
