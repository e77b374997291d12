#pragma once

/// Codes and factors: of weights at an update of an engine, of activations before a product; and the numbers of experts again.
///
/// Factors of rows are [C, P]: a row of factors for each block of 128 inputs, P = factor_pitch(rows). Device
/// memory, 16-byte aligned; codes are bytes. Asynchronous on `stream`; std::runtime_error when a launch fails.

#include <cstdint>

#include "kernels/cuda/fp8/factor_rows.h"
#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda::fp8 {

struct Rows {
  uint8_t* codes_TI = nullptr;
  float* factors_CP = nullptr;
};

/// A matrix, or rows of a fused one that begin with a part of it: blocks of 128 x 128. Inputs are a multiple of
/// 8.
void quantise_blocks(Number number, const void* plain_OI, uint8_t* codes_OI, float* factors_BC,
                     int64_t outputs, int64_t inputs, Stream stream);

/// Rows of activations: blocks of 1 x 128. Inputs are a multiple of 4.
void quantise_rows(Number number, const void* x_TI, const Rows& to, int64_t rows, int64_t inputs,
                   Stream stream);

/// silu(gate) * up, rounded to bfloat16, as codes; rows of gate_up are [gate; up], bfloat16.
void swiglu_rows(const void* gate_up_T2F, const Rows& to, int64_t rows, int64_t width,
                 Stream stream);

/// add_partials_rms_norm() (kernels/cuda/rows/rows.h) whose result is rounded to bfloat16 and becomes codes. The sum may be
/// x. Inputs are a multiple of 4, at most kMostNormed.
void norm_rows(const void* x_TH, void* sum_TH, const float* partials_STH, int num_splits,
               const void* bias_H, const void* weight_H, const Rows& to, int64_t rows,
               int64_t hidden, float eps, Stream stream);
inline constexpr int64_t kMostNormed = 16384;

/// Matrices of experts as codes. C = inputs / 128, rounded up.
struct ExpertNumbers {
  const uint8_t* codes_EOI = nullptr;
  const float* factors_EBC = nullptr;
  const int64_t* factor_row_O = nullptr;  // of each output of an expert, below B
  int64_t experts = 0, outputs = 0, inputs = 0;
  int64_t factor_rows = 0;  // B
};
/// The other way: each code times its factor in float32, then rounded. Inputs are a multiple of 8.
void write_numbers(Number number, const ExpertNumbers& from, void* numbers_EOI, Stream stream);

}  // namespace slime::kernels::cuda::fp8
