#pragma once

/// The weight of a norm as kernels multiply with it.

#include "kernels/param.h"

namespace slime::model {

/// `weight` itself, or (`adds_one`) 1 + weight in float32 (float64), whose gradient is the weight's.
/// Undefined stays undefined.
kernels::Param norm_weight(const kernels::Param& weight, bool adds_one);

}  // namespace slime::model
