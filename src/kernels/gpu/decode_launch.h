#pragma once

/// A plan of decode on the device, for those without a block of their own to send it in (tests,
/// measurements); the engine has engine/step_block.h.

#include "kernels/gpu/decode_units.h"
#include "kernels/gpu/gpu.h"

namespace slime::kernels {

DecodeLaunch to_launch(const DecodePlan& plan, at::Device device);

}  // namespace slime::kernels
