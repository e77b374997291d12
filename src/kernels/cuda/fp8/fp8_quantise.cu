#include "kernels/cuda/fp8/quantise.h"

#include <algorithm>

#include "kernels/cuda/fp8/e4m3.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <typename T>
__device__ float4 load_four(const T* from) {
  const auto four = *reinterpret_cast<const Pack<T, 4>*>(from);
  return make_float4(to_float(four.x[0]), to_float(four.x[1]), to_float(four.x[2]),
                     to_float(four.x[3]));
}

__device__ inline float4 unpack_four(uint2 four) {
  const float2 low = unpack<BFloat16>(four.x), high = unpack<BFloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ inline float4 rounded(const float4& x) {
  return unpack_four(make_uint2(pack<BFloat16>(x.x, x.y), pack<BFloat16>(x.z, x.w)));
}

/// A thread block makes one block; its numbers are held as they are stored between the two passes.
template <typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 3 : 2)
    quantise_blocks_kernel(const T* plain_OI, uint8_t* codes_OI, float* factors_BC, int64_t outputs,
                           int64_t inputs) {
  using Eight = Pack<T, 8>;
  constexpr int kLanes = kBlock / 8, kStep = kThreads / kLanes, kRows = kBlock / kStep;
  __shared__ float of_warps[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kBlock + threadIdx.x / kLanes,
                column = static_cast<int64_t>(blockIdx.x) * kBlock + 8 * (threadIdx.x % kLanes);
  launch_dependents();
  grid_dependency_wait();
  Eight held[kRows];
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i * kStep;
    if (row < outputs && column < inputs) {
      held[i] = *reinterpret_cast<const Eight*>(plain_OI + row * inputs + column);
    } else {
#pragma unroll
      for (T& x : held[i].x) x = from_float<T>(0);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (const T& x : held[i].x) amax = fmaxf(amax, fabsf(to_float(x)));
  amax = warp_max(amax);
  if (lane == 0) of_warps[warp] = amax;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) amax = fmaxf(amax, of_warps[w]);
  const float factor = factor_of(amax);
  if (threadIdx.x == 0)
    factors_BC[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = factor;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i * kStep;
    const auto four = [&](int from) {
      return codes_of(make_float4(to_float(held[i].x[from]), to_float(held[i].x[from + 1]),
                                  to_float(held[i].x[from + 2]), to_float(held[i].x[from + 3])),
                      factor);
    };
    if (row < outputs && column < inputs)
      *reinterpret_cast<uint2*>(codes_OI + row * inputs + column) = make_uint2(four(0), four(4));
  }
}

/// A warp makes the codes of a block of a row.
__device__ void write_block(const float4& x, bool is_inside, const Rows& to, int64_t row,
                            int64_t column, int64_t inputs, int64_t pitch) {
  const float factor = factor_of(warp_max(largest(x)));
  if (threadIdx.x % 32 == 0) to.factors_CP[column / kBlock * pitch + row] = factor;
  if (is_inside)
    *reinterpret_cast<uint32_t*>(to.codes_TI + row * inputs + column) = codes_of(x, factor);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantise_rows_kernel(const T* x_TI, Rows to, int64_t inputs, int64_t pitch) {
  const int64_t row = blockIdx.x,
                column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * 4;
  launch_dependents();
  if (column / kBlock * kBlock >= inputs) return;  // all of a warp
  grid_dependency_wait();
  const bool is_inside = column < inputs;
  const float4 x = is_inside ? load_four(x_TI + row * inputs + column) : make_float4(0, 0, 0, 0);
  write_block(x, is_inside, to, row, column, inputs, pitch);
}

__global__ void __launch_bounds__(kThreads)
    swiglu_rows_kernel(const BFloat16* gate_up_T2F, Rows to, int64_t width, int64_t pitch) {
  const int64_t row = blockIdx.x,
                column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * 4;
  launch_dependents();
  if (column / kBlock * kBlock >= width) return;
  grid_dependency_wait();
  const bool is_inside = column < width;
  float4 x = make_float4(0, 0, 0, 0);
  if (is_inside) {
    const float4 gate = load_four(gate_up_T2F + 2 * row * width + column),
                 up = load_four(gate_up_T2F + (2 * row + 1) * width + column);
    x = rounded(make_float4(silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z,
                            silu(gate.w) * up.w));
  }
  write_block(x, is_inside, to, row, column, width, pitch);
}

/// A thread block norms a row; a thread has kHeld times four of its numbers, a warp whole blocks of 128. All
/// loads come first: each round of them is the latency of the second level cache.
template <int kHeld>
__global__ void __launch_bounds__(1024)
    norm_rows_kernel(const uint2* x_TH, uint2* sum_TH, const float4* partials_STH, int num_splits,
                     const uint2* bias_H, const uint2* weight_H, Rows to, int64_t hidden,
                     int64_t pitch, float eps) {
  constexpr int kAtOnce = kHeld == 1 ? 8 : 4;
  __shared__ float scratch[33];
  const int64_t row = blockIdx.x, fours = hidden / 4, stride = gridDim.x * fours;
  launch_dependents();
  uint2 weight[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = threadIdx.x + h * blockDim.x;
    weight[h] = i < fours ? load_read_only(weight_H + i) : make_uint2(0, 0);
  }
  grid_dependency_wait();
  uint2 held[kHeld];
  float4 sum[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = threadIdx.x + h * blockDim.x;
    held[h] = i < fours ? load_past_l1(x_TH + row * fours + i) : make_uint2(0, 0);
    sum[h] = make_float4(0, 0, 0, 0);
    if (i < fours)
      add_partials<kAtOnce>(sum[h], partials_STH + row * fours + i, stride, num_splits);
    if (i < fours && bias_H != nullptr) add_to(sum[h], unpack_four(bias_H[i]));
  }
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = threadIdx.x + h * blockDim.x;
    const float4 before = unpack_four(held[h]);
    held[h] = make_uint2(pack<BFloat16>(before.x + sum[h].x, before.y + sum[h].y),
                         pack<BFloat16>(before.z + sum[h].z, before.w + sum[h].w));
    if (i < fours) sum_TH[row * fours + i] = held[h];
    const float4 now = unpack_four(held[h]);
    squares += now.x * now.x + now.y * now.y + now.z * now.z + now.w * now.w;
  }
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(hidden) + eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int64_t i = threadIdx.x + h * blockDim.x;
    if (4 * i / kBlock * kBlock >= hidden) continue;  // all of a warp
    const float4 now = unpack_four(held[h]), by = unpack_four(weight[h]);
    const float4 x = rounded(make_float4(now.x * scale * by.x, now.y * scale * by.y,
                                         now.z * scale * by.z, now.w * scale * by.w));
    write_block(x, i < fours, to, row, 4 * i, hidden, pitch);
  }
}

/// A thread block has kRowsAtOnce rows of eight numbers a thread.
constexpr int kRowsAtOnce = 4;
template <typename T>
__global__ void __launch_bounds__(kThreads) numbers_kernel(ExpertNumbers from, T* numbers_EOI) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRowsAtOnce,
                column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * 8,
                columns = divide_up(from.inputs, int64_t{kBlock}),
                rows = from.experts * from.outputs;
  launch_dependents();
  grid_dependency_wait();
  if (column >= from.inputs) return;
  uint2 codes[kRowsAtOnce];
  float factor[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const int64_t row = first + r, expert = row / from.outputs;
    if (row >= rows) continue;
    codes[r] = *reinterpret_cast<const uint2*>(from.codes_EOI + row * from.inputs + column);
    const int64_t of_row =
        expert * from.factor_rows + from.factor_row_O[row - expert * from.outputs];
    factor[r] = from.factors_EBC[of_row * columns + column / kBlock];
  }
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    if (first + r >= rows) continue;
    Pack<T, 8> eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t four = i < 2 ? codes[r].x : codes[r].y;
      const float2 two = unpack<Float16>(unpack_fp8(i % 2 == 0 ? four & 0xffffU : four >> 16));
      eight.x[2 * i] = from_float<T>(two.x * factor[r]);
      eight.x[2 * i + 1] = from_float<T>(two.y * factor[r]);
    }
    *reinterpret_cast<Pack<T, 8>*>(numbers_EOI + (first + r) * from.inputs + column) = eight;
  }
}

/// Of any number of rows: the first size of a grid may be large.
dim3 grid_of_rows(int64_t rows, int64_t inputs) {
  return dim3(static_cast<unsigned>(rows),
              static_cast<unsigned>(divide_up(inputs, int64_t{4 * kThreads})));
}

void check_inputs(int64_t inputs) {
  if (inputs % 4 != 0)
    throw std::runtime_error("codes of rows of " + std::to_string(inputs) +
                             " numbers: rows are multiples of 4");
}

}  // namespace

void quantise_blocks(Number number, const void* plain_OI, uint8_t* codes_OI, float* factors_BC,
                     int64_t outputs, int64_t inputs, Stream stream) {
  if (inputs % 8 != 0)
    throw std::runtime_error("codes of a matrix of rows of " + std::to_string(inputs) +
                             " numbers: rows are multiples of 8");
  const dim3 grid(static_cast<unsigned>(divide_up(inputs, int64_t{kBlock})),
                  static_cast<unsigned>(divide_up(outputs, int64_t{kBlock})));
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(quantise_blocks_kernel<T>, grid, dim3(kThreads), 0, stream,
           static_cast<const T*>(plain_OI), codes_OI, factors_BC, outputs, inputs);
  });
}

void write_numbers(Number number, const ExpertNumbers& from, void* numbers_EOI, Stream stream) {
  if (from.inputs % 8 != 0)
    throw std::runtime_error("numbers of a matrix of rows of " + std::to_string(from.inputs) +
                             " codes: rows are multiples of 8");
  const int64_t threads = std::min(int64_t{kThreads}, round_up(from.inputs / 8, int64_t{32}));
  const dim3 grid(
      static_cast<unsigned>(divide_up(from.experts * from.outputs, int64_t{kRowsAtOnce})),
      static_cast<unsigned>(divide_up(from.inputs, 8 * threads)));
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(numbers_kernel<T>, grid, dim3(static_cast<unsigned>(threads)), 0, stream, from,
           static_cast<T*>(numbers_EOI));
  });
}

void quantise_rows(Number number, const void* x_TI, const Rows& to, int64_t rows, int64_t inputs,
                   Stream stream) {
  check_inputs(inputs);
  with_type(number, [&](auto type) {
    using T = decltype(type);
    launch(quantise_rows_kernel<T>, grid_of_rows(rows, inputs), dim3(kThreads), 0, stream,
           static_cast<const T*>(x_TI), to, inputs, factor_pitch(rows));
  });
}

void swiglu_rows(const void* gate_up_T2F, const Rows& to, int64_t rows, int64_t width,
                 Stream stream) {
  check_inputs(width);
  launch(swiglu_rows_kernel, grid_of_rows(rows, width), dim3(kThreads), 0, stream,
         static_cast<const BFloat16*>(gate_up_T2F), to, width, factor_pitch(rows));
}

void norm_rows(const void* x_TH, void* sum_TH, const float* partials_STH, int num_splits,
               const void* bias_H, const void* weight_H, const Rows& to, int64_t rows,
               int64_t hidden, float eps, Stream stream) {
  check_inputs(hidden);
  if (hidden > kMostNormed)
    throw std::runtime_error("norms of rows of " + std::to_string(hidden) + " numbers");
  // Of a row so many threads that each has few numbers.
  constexpr int kMostThreads = 1024;
  const auto run = [&](auto kernel, int held) {
    const auto threads = static_cast<unsigned>(
        round_up(divide_up(hidden / 4, static_cast<int64_t>(held)), int64_t{32}));
    launch(kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0, stream,
           static_cast<const uint2*>(x_TH), static_cast<uint2*>(sum_TH),
           reinterpret_cast<const float4*>(partials_STH), num_splits,
           static_cast<const uint2*>(bias_H), static_cast<const uint2*>(weight_H), to, hidden,
           factor_pitch(rows), eps);
  };
  if (hidden <= 4 * kMostThreads) return run(norm_rows_kernel<1>, 1);
  hidden <= 8 * kMostThreads ? run(norm_rows_kernel<2>, 2) : run(norm_rows_kernel<4>, 4);
}

}  // namespace slime::kernels::cuda::fp8
