#pragma once

/// Rows of a matrix in any order, some of them several times, and the sums that are their gradient.
///
/// Sums are made in the order of their terms: ATen's index_add on a GPU adds in the order in which
/// threads arrive, so that two runs would differ.

#include "core/tensor.h"

namespace slime::kernels {

/// Row row_S[s] of x_LH for each s. Differentiable in x.
Tensor pick_rows(const Tensor& x_LH, const Tensor& row_S);

/// [rows, H], whose row r is the sum of the rows s of x_SH with row_S[s] = r. x may have any number of
/// dimensions, also only the first. Differentiable in x.
Tensor sum_rows(const Tensor& x_SH, const Tensor& row_S, int64_t rows);

}  // namespace slime::kernels
