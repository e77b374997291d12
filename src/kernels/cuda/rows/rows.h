#pragma once

/// Kernels over rows of activations: embedding, norms, gated activation. Plain pointers, so that
/// the compiler of CUDA never sees ATen.
///
/// Rows are contiguous and start at multiples of 16 bytes, so row lengths are multiples of 8 (of 4
/// in float32). All are asynchronous on `stream` and throw std::runtime_error when the launch
/// fails. Statistics are float32.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

void embedding(Number number, const int64_t* ids_T, const void* table_VH, void* out_TH,
               int64_t rows, int64_t hidden, Stream stream);

/// out = norm(x) * weight. With `update_TH`, sum = x + update (rounded to the precision of x) is
/// normed instead of x and written to sum_TH, which may be x_TH. `of_weight`: the precision of x, or
/// float32.
void add_rms_norm(Number number, const void* x_TH, const void* update_TH, const void* weight_H,
                  Number of_weight, void* sum_TH, void* out_TH, int64_t rows, int64_t hidden,
                  float eps, Stream stream);

/// The reduction of split-K, with the norm behind it, in bfloat16: x += the sum of `num_splits`
/// partial sums in one order (and of the bias, null: none), rounded once to the precision of x; out
/// = norm(x) * weight.
void add_partials_rms_norm(void* x_TH, const float* partials_STH, int num_splits,
                           const void* bias_H, const void* weight_H, void* out_TH, int64_t rows,
                           int64_t hidden, float eps, Stream stream);

/// silu(gate) * up, rows of gate_up being [gate; up].
void swiglu(Number number, const void* gate_up_T2F, void* out_TF, int64_t rows, int64_t width,
            Stream stream);

/// ids below zero become sampled_R[-id - 1].
void resolve_ids(int64_t* ids_T, const int32_t* sampled_R, int64_t rows, Stream stream);

/// Whether this library holds machine code for the current device.
bool has_code_for_device();

}  // namespace slime::kernels::cuda
