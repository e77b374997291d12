#pragma once

#include "kernels/device.h"

namespace slime::kernels::cpu {

/// The fastest kernels that this processor has: FastDevice with AVX2, ReferenceDevice without. The
/// first call gives the cores to the kernels' own threads.
const Device& device();

}  // namespace slime::kernels::cpu
