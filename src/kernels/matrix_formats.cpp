#include "kernels/matrix_formats.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "core/divide_up.h"
#include "core/error.h"

namespace slime::kernels {
namespace {

constexpr std::array kFormats{
    FormatRow{MatrixFormat::kFp8Blocks, "fp8-blocks", at::kFloat8_e4m3fn, 128, 128},
    FormatRow{MatrixFormat::kFp8Channels, "fp8-channels", at::kFloat8_e4m3fn, 1, 0},
};

constexpr double kLargestE4m3 = 448;
/// Of a block's largest number: a block of zeros has a factor, too (DeepGEMM's).
constexpr double kSmallestAmax = 1e-4;

/// A factor for each number of a part or a matrix whose rows of factors are `scales_OC`.
Tensor factors_of(const FormatRow& format, const Tensor& scales_OC, int64_t inputs) {
  if (format.block_columns == 0) return scales_OC;
  return scales_OC.repeat_interleave(format.block_columns, -1).narrow(-1, 0, inputs);
}

/// Largest absolute numbers of the blocks.
Tensor amax_of(const FormatRow& format, const Tensor& wide_OI) {
  const int64_t outputs = wide_OI.size(0), inputs = wide_OI.size(1);
  const int64_t b = scale_rows(format, outputs), c = scale_columns(format, inputs);
  const int64_t columns = format.block_columns == 0 ? inputs : format.block_columns;
  const Tensor padded = at::constant_pad_nd(
      wide_OI.abs(), {0, c * columns - inputs, 0, b * format.block_rows - outputs});
  return padded.view({b, format.block_rows, c, columns}).amax({1, 3});
}

}  // namespace

std::span<const FormatRow> matrix_formats() { return kFormats; }

const FormatRow& row_of(MatrixFormat format) {
  const auto found = std::ranges::find(kFormats, format, &FormatRow::format);
  check(found != kFormats.end(), "a format of matrices has a row in the table");
  return *found;
}

int64_t scale_rows(const FormatRow& format, int64_t outputs) {
  return divide_up(outputs, format.block_rows);
}

int64_t scale_columns(const FormatRow& format, int64_t inputs) {
  return format.block_columns == 0 ? 1 : divide_up(inputs, format.block_columns);
}

void quantise_(const FormatRow& format, const Tensor& plain_OI, const Tensor& codes_OI,
               const Tensor& scales_BC) {
  const Tensor wide_OI = plain_OI.to(at::kFloat);
  const int64_t outputs = wide_OI.size(0), inputs = wide_OI.size(1);
  // Of the numbers' device, which the codes need not have.
  // By a tensor: on GPUs LibTorch multiplies with the reciprocal of a number, which rounds once more.
  const Tensor factors_BC = amax_of(format, wide_OI)
                                .clamp_min_(kSmallestAmax)
                                .div_(at::scalar_tensor(kLargestE4m3, wide_OI.options()));
  const Tensor scales_OC = factors_BC.repeat_interleave(format.block_rows, 0).narrow(0, 0, outputs);
  // A cast of more than the largest code is not a number everywhere.
  Tensor codes = codes_OI, scales = scales_BC;
  scales.copy_(factors_BC);
  codes.copy_(wide_OI.div(factors_of(format, scales_OC, inputs))
                  .clamp_(-kLargestE4m3, kLargestE4m3)
                  .to(format.code));
}

Tensor numbers_of(const Matrix& matrix, at::ScalarType precision) {
  if (matrix.format == MatrixFormat::kPlain || matrix.adapters != nullptr)
    return matrix.plain().to(precision);
  const FormatRow& format = row_of(matrix.format);
  const Tensor scales_OC = matrix.scales.index_select(-2, matrix.scale_row_O);
  return matrix.values.to(at::kFloat)
      .mul_(factors_of(format, scales_OC, matrix.inputs()))
      .to(precision);
}

}  // namespace slime::kernels
