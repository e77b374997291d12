#pragma once

/// Rows of the embedding table. Dimensions: T tokens, V vocabulary, H hidden size.

#include "core/tensor.h"
#include "kernels/param.h"

namespace slime::kernels {

/// [T, H] in `activations` precision. Under grad mode the result requires gradient, although no
/// input does: the backward adds into table.grad. Ids outside [0, V) are a BugError.
Tensor embedding(const Tensor& ids_T, const Param& table_VH, at::ScalarType activations);

}  // namespace slime::kernels
