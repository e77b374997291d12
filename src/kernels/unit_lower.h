#pragma once

/// The inverse of a unit lower triangular matrix, for devices on which a triangular system is solved
/// by a product with it.

#include "core/tensor.h"

namespace slime::kernels {

/// (1 + lower)^-1 of each matrix. lower_MCC: [M, C, C], strictly lower triangular; C a power of two.
/// By blocks that double in size: [A 0; L D]^-1 = [A^-1 0; -D^-1 L A^-1 D^-1]. So nothing is larger
/// than the inverse itself, unlike powers of the matrix.
Tensor inverse_of_unit_lower(const Tensor& lower_MCC);

}  // namespace slime::kernels
