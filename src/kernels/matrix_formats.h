#pragma once

/// Formats of matrices: one row of a table each.
///
/// A format has codes and a float32 factor for each block of them. A matrix is made in parts, which are
/// the tensors of files; blocks begin with a part, and its last ones may be partial:
///
///   fp8-blocks    320 x 160   3 x 2 blocks of 128 x 128, the last ones of 64 rows and 32 columns
///   fp8-channels  320 x 160   320 x 1: each output has a factor
///
/// Dimensions: O outputs, I inputs, B rows and C columns of blocks.

#include <span>
#include <string_view>

#include "kernels/matrix.h"

namespace slime::kernels {

struct FormatRow {
  MatrixFormat format = MatrixFormat::kPlain;
  std::string_view word;
  at::ScalarType code = at::kByte;
  int64_t block_rows = 1;
  int64_t block_columns = 0;  // 0: all inputs
};

/// All but plain.
std::span<const FormatRow> matrix_formats();
/// BugError for kPlain, which has no row.
const FormatRow& row_of(MatrixFormat format);

/// B and C of a part.
int64_t scale_rows(const FormatRow& format, int64_t outputs);
int64_t scale_columns(const FormatRow& format, int64_t inputs);

/// Codes and factors of a part, from its numbers in any precision; both are written in place.
///   s = max(largest absolute number of the block, 1e-4) / 448    code = e4m3(number / s)
/// in float32, rounded to nearest, ties to even.
void quantise_(const FormatRow& format, const Tensor& plain_OI, const Tensor& codes_OI,
               const Tensor& scales_BC);

/// The numbers in this precision: of a plain matrix as they are, of another format made for the call (a
/// code times its factor in float32, then rounded). Throws BugError for a matrix with adapters.
Tensor numbers_of(const Matrix& matrix, at::ScalarType precision);

}  // namespace slime::kernels
