#pragma once

/// Matrices of e4m3 codes for tests, and the numbers that codes of activations mean.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "kernels/cuda/gpu_test_tensors.h"
#include "kernels/matrix_formats.h"

namespace slime::kernels {

inline const FormatRow& fp8_blocks() { return row_of(MatrixFormat::kFp8Blocks); }

/// A matrix fused from parts with these outputs, on the CPU.
inline Matrix stored_codes(std::initializer_list<int64_t> parts, int64_t inputs) {
  Matrix matrix;
  std::vector<Tensor> codes, scales, rows;
  int64_t first = 0;
  for (const int64_t outputs : parts) {
    codes.push_back(at::empty({outputs, inputs}, fp8_blocks().code));
    scales.push_back(at::empty(
        {scale_rows(fp8_blocks(), outputs), scale_columns(fp8_blocks(), inputs)}, at::kFloat));
    const Tensor numbers = at::randn({outputs, inputs}) / std::sqrt(static_cast<double>(inputs));
    quantise_(fp8_blocks(), numbers.to(at::kBFloat16), codes.back(), scales.back());
    rows.push_back(at::arange(outputs, at::kLong).div_(128, "floor").add_(first));
    first += scales.back().size(0);
  }
  matrix.format = MatrixFormat::kFp8Blocks;
  // A tensor of codes is put together as bytes.
  for (Tensor& part : codes) part = part.view(at::kByte);
  matrix.values = at::cat(codes).view(fp8_blocks().code);
  matrix.scales = at::cat(scales);
  matrix.scale_row_O = at::cat(rows);
  return matrix;
}

inline Matrix codes_on_gpu(const Matrix& matrix) {
  Matrix there = matrix;
  there.values = to_gpu(matrix.values);
  there.scales = to_gpu(matrix.scales);
  there.scale_row_O = to_gpu(matrix.scale_row_O);
  return there;
}

/// Rows as the numbers that their codes mean: blocks of 1 x 128.
inline Tensor as_codes_mean(const Tensor& x_TI) {
  const Tensor wide_TI = x_TI.to(at::kFloat), codes = at::empty_like(wide_TI);
  for (int64_t begin = 0; begin < x_TI.size(1); begin += 128) {
    const int64_t count = std::min<int64_t>(128, x_TI.size(1) - begin);
    const Tensor block = wide_TI.narrow(1, begin, count);
    const Tensor factor = block.abs().amax(1, true).clamp_min_(1e-4).div_(448);
    codes.narrow(1, begin, count)
        .copy_(block.div(factor).to(fp8_blocks().code).to(at::kFloat).mul_(factor));
  }
  return codes;
}

/// Of `count` experts, [E, O, I], whose matrices are fused from parts with these outputs.
inline Matrix stored_experts(int64_t count, std::initializer_list<int64_t> parts, int64_t inputs) {
  std::vector<Tensor> codes, scales;
  Matrix all;
  for (int64_t e = 0; e < count; ++e) {
    all = stored_codes(parts, inputs);
    codes.push_back(all.values.view(at::kByte));
    scales.push_back(all.scales);
  }
  all.values = at::stack(codes).view(fp8_blocks().code);
  all.scales = at::stack(scales);
  return all;
}

}  // namespace slime::kernels
