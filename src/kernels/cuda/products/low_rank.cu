#include "kernels/cuda/products/low_rank.h"

#include <algorithm>

#include "kernels/cuda/products/low_rank_numbers.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace low_rank;

constexpr int kColumns = 64;   // read at once on the way down
constexpr int kOutputs = 64;   // of a thread block on the way up
constexpr int kManyRows = 64;  // more have tiles of 64, fewer of 16

constexpr int kColumnPairs = kColumns / 2;
/// Steps of columns whose numbers are in flight: few rows wait for memory, more have other thread blocks beside them.
constexpr int steps_ahead(int row_tiles) { return row_tiles == 1 ? 4 : 1; }
/// Splits of h likewise.
constexpr int splits_at_once(int row_tiles) { return row_tiles == 1 ? 4 : 1; }

/// A block's rows: neighbours, or those of a tile.
template <typename Call, int kRowTiles, bool kByRow>
struct BlockRows {
  static constexpr int kRows = 16 * kRowTiles;
  static_assert(!kByRow || kRows == LowRankRows::kRows);

  const Call& call;

  /// -1: there is none.
  __device__ int operator[](int i) const {
    const int n = static_cast<int>(blockIdx.x) * kRows + i;
    if constexpr (kByRow) return call.by_row.row_N[n];
    return n < call.rows ? n : -1;
  }
  /// Null: the rows take none.
  __device__ const LowRankFactors* factors() const {
    if constexpr (!kByRow) return &call.factors;
    const int slot = call.by_row.slot_N[blockIdx.x];
    return slot < 0 ? nullptr : call.by_row.table + slot;
  }
};

/// A block: 16 kRowTiles rows, 32 ranks of one factor, one split. Its warps take 16 of each 64 columns.
template <typename T, int kRowTiles, bool kByRow>
__global__ void __launch_bounds__(kThreads) down_kernel(const __grid_constant__ LowRankDown call) {
  constexpr int kRows = 16 * kRowTiles, kAhead = steps_ahead(kRowTiles);
  __shared__ __align__(16) uint32_t a_RC[kRanks][kColumnPairs + kPad];
  __shared__ __align__(16) uint32_t x_TC[kRows][kColumnPairs + kPad];
  __shared__ float sums[kWarps][kRows][kRanks + 1];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int group = lane / 4, quarter = lane % 4;
  const BlockRows<LowRankDown, kRowTiles, kByRow> rows{call};
  launch_dependents();
  if constexpr (kByRow) grid_dependency_wait();  // the tiles are the step's
  const LowRankFactors* const factors = rows.factors();
  if (factors == nullptr) return;
  int which = 0, first_rank = blockIdx.y * kRanks;
  while (which < factors->count && first_rank >= rounded_rank(factors->of[which])) {
    first_rank -= rounded_rank(factors->of[which]);
    ++which;
  }
  if (which == factors->count) return;  // others have more pairs
  const LowRankFactor& factor = factors->of[which];
  const int begin = factor.begin + blockIdx.z * kLowRankSplit;
  const int end = min(factor.end, begin + kLowRankSplit);
  if (begin >= end) return;

  // Four numbers of a line at once, whichever way it lies: of a factor that is not turned two neighbouring lines.
  constexpr int kFactorLoads = kRanks * kColumns / 4 / kThreads;
  const bool is_whole = has_whole_fours(factor);
  float4 a_next[kAhead][kFactorLoads];
  uint4 x_next[kAhead][kRowTiles];
  const auto load_factor = [&](int column, float4(&a)[kFactorLoads]) {
#pragma unroll
    for (int i = 0; i < kFactorLoads; ++i) {
      const int n = i * kThreads + thread, of_two = i / 2 * kThreads + thread;
      const int m = factor.is_turned ? n % (kColumns / 4) * 4 : of_two / (kRanks / 4) * 2 + i % 2;
      const int rank = factor.is_turned ? n / (kColumns / 4) : of_two % (kRanks / 4) * 4;
      a[i] = four_of_line(factor, column + m - factor.begin, first_rank + rank, is_whole);
    }
  };
  const auto load_x = [&](int column, uint4(&x)[kRowTiles]) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int n = i * kThreads + thread, row = rows[n / 8], at = column + n % 8 * 8;
      x[i] = make_uint4(0, 0, 0, 0);
      if (row >= 0 && at < end)
        x[i] = *reinterpret_cast<const uint4*>(static_cast<const T*>(call.x_TI) + row * call.pitch +
                                               at);
    }
  };
  const auto store = [&](const float4(&a)[kFactorLoads], const uint4(&x)[kRowTiles]) {
#pragma unroll
    for (int i = 0; i < kFactorLoads; ++i) {
      const int n = i * kThreads + thread, of_two = i / 2 * kThreads + thread;
      if (factor.is_turned) {
        const float4& four = a[i];
        *reinterpret_cast<uint2*>(&a_RC[n / (kColumns / 4)][n % (kColumns / 4) * 2]) =
            make_uint2(pack<T>(four.x, four.y), pack<T>(four.z, four.w));
      } else if (i % 2 == 0) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          a_RC[of_two % (kRanks / 4) * 4 + k][of_two / (kRanks / 4)] =
              pack<T>(number_of_four(a[i], k), number_of_four(a[i + 1], k));
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int n = i * kThreads + thread;
      *reinterpret_cast<uint4*>(&x_TC[n / 8][n % 8 * 4]) = x[i];
    }
  };

  float sum[kRowTiles][kRanks / 8][4] = {};
#pragma unroll
  for (int step = 0; step < kAhead; ++step)
    if (begin + step * kColumns < end) load_factor(begin + step * kColumns, a_next[step]);
  if constexpr (!kByRow) grid_dependency_wait();
#pragma unroll
  for (int step = 0; step < kAhead; ++step)
    if (begin + step * kColumns < end) load_x(begin + step * kColumns, x_next[step]);
  const auto multiply_step = [&](int column, float4(&a)[kFactorLoads], uint4(&of_x)[kRowTiles]) {
    store(a, of_x);
    __syncthreads();
    if (column + kAhead * kColumns < end) {
      load_factor(column + kAhead * kColumns, a);
      load_x(column + kAhead * kColumns, of_x);
    }
    const int early = 8 * warp + quarter, late = early + 4;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const auto& upper = x_TC[16 * tile + group];
      const auto& lower = x_TC[16 * tile + group + 8];
      const uint32_t x[4] = {upper[early], lower[early], upper[late], lower[late]};
#pragma unroll
      for (int n = 0; n < kRanks / 8; ++n)
        multiply<T>(sum[tile][n], x[0], x[1], x[2], x[3], a_RC[8 * n + group][early],
                    a_RC[8 * n + group][late]);
    }
    __syncthreads();
  };
  for (int first = begin; first < end; first += kAhead * kColumns) {
#pragma unroll
    for (int step = 0; step < kAhead; ++step)
      if (first + step * kColumns < end)
        multiply_step(first + step * kColumns, a_next[step], x_next[step]);
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < kRanks / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][16 * tile + group + i / 2 * 8][8 * n + 2 * quarter + i % 2] = sum[tile][n][i];
    }
  }
  __syncthreads();
  for (int n = thread; n < kRows * kRanks; n += kThreads) {
    const int at = n / kRanks, rank = n % kRanks, row = rows[at];
    if (row < 0 || first_rank + rank >= factor.rank) continue;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sums[w][at][rank];
    const int64_t line = static_cast<int64_t>(blockIdx.z) * call.rows + row;
    call.h_STR[line * call.h_pitch + factor.column + first_rank + rank] = total;
  }
}

/// The sum of a number's splits, from the first to the last.
__device__ inline float sum_of_splits(const float* h_STR, int64_t index, int64_t pitch,
                                      int splits) {
  float total = 0;
  for (int split = 0; split < splits; ++split) total += h_STR[split * pitch + index];
  return total;
}

__global__ void __launch_bounds__(kThreads)
    sums_kernel(const __grid_constant__ LowRankDown call, float* h_TR) {
  const LowRankFactor& factor = call.factors.of[blockIdx.y];
  launch_dependents();
  grid_dependency_wait();
  const int64_t pitch = static_cast<int64_t>(call.rows) * call.h_pitch;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n >= static_cast<int64_t>(call.rows) * factor.rank) return;
  const int64_t index = n / factor.rank * call.h_pitch + factor.column + n % factor.rank;
  h_TR[index] = sum_of_splits(call.h_STR, index, pitch, factor.splits);
}

/// A block: 16 kRowTiles rows, 64 outputs, of which each warp has 16.
template <typename T, typename Y, typename Out, int kRowTiles, bool kByRow>
__global__ void __launch_bounds__(kThreads, kRowTiles == 1 ? 5 : 4)
    up_kernel(const __grid_constant__ LowRankUp call) {
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kFactorLoads = kOutputs * kRankPairs / kThreads;
  constexpr int kHiddenLoads = kRows * kRankPairs / kThreads;
  constexpr int kAtOnce = splits_at_once(kRowTiles);
  __shared__ uint32_t high_TR[kRows][kRankPairs + kPad], low_TR[kRows][kRankPairs + kPad];
  __shared__ uint32_t b_OR[kOutputs][kRankPairs + kPad];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int group = lane / 4, quarter = lane % 4;
  const BlockRows<LowRankUp, kRowTiles, kByRow> rows{call};
  const int first_output = blockIdx.y * kOutputs;
  const int first_of_matrix = first_output + call.first_output;  // as ranges count
  const int64_t pitch = static_cast<int64_t>(call.rows) * call.h_pitch;
  float sum[kRowTiles][2][4] = {};
  launch_dependents();
  if constexpr (kByRow) grid_dependency_wait();
  bool waits = !kByRow;
  const LowRankFactors* const factors = rows.factors();
  const int count = factors == nullptr ? 0 : factors->count;
  for (int which = 0; which < count; ++which) {
    const LowRankFactor& factor = factors->of[which];
    if (factor.end <= first_of_matrix || factor.begin >= first_of_matrix + kOutputs) continue;
    for (int first_rank = 0; first_rank < factor.rank; first_rank += kRanks) {
      float2 b[kFactorLoads];
#pragma unroll
      for (int i = 0; i < kFactorLoads; ++i) {
        const int n = i * kThreads + thread;
        const int output = factor.is_turned ? n % kOutputs : n / kRankPairs;
        const int pair = factor.is_turned ? n / kOutputs : n % kRankPairs;
        b[i] = two_of_row(factor, first_of_matrix + output - factor.begin, first_rank + 2 * pair);
      }
      if (waits) grid_dependency_wait();
      waits = false;
      // Splits of all of a thread's numbers, several of them at once.
      int64_t index[kHiddenLoads];
      int there[kHiddenLoads];  // numbers of two
      float h[kHiddenLoads][2] = {};
#pragma unroll
      for (int i = 0; i < kHiddenLoads; ++i) {
        const int n = i * kThreads + thread;
        const int row = rows[n / kRankPairs], rank = first_rank + 2 * (n % kRankPairs);
        index[i] = static_cast<int64_t>(row) * call.h_pitch + factor.column + rank;
        there[i] = row < 0 ? 0 : min(2, factor.rank - rank);
      }
      for (int split = 0; split < factor.splits; split += kAtOnce) {
        float part[kAtOnce][kHiddenLoads][2];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
          for (int i = 0; i < kHiddenLoads; ++i)
#pragma unroll
            for (int k = 0; k < 2; ++k)
              part[s][i][k] = split + s < factor.splits && k < there[i]
                                  ? call.h_STR[(split + s) * pitch + index[i] + k]
                                  : 0.0F;
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s)
          if (split + s < factor.splits)
#pragma unroll
            for (int i = 0; i < kHiddenLoads; ++i)
#pragma unroll
              for (int k = 0; k < 2; ++k) h[i][k] += part[s][i][k];
      }
#pragma unroll
      for (int i = 0; i < kFactorLoads; ++i) {
        const int n = i * kThreads + thread;
        const int output = factor.is_turned ? n % kOutputs : n / kRankPairs;
        b_OR[output][factor.is_turned ? n / kOutputs : n % kRankPairs] = pack<T>(b[i].x, b[i].y);
      }
#pragma unroll
      for (int i = 0; i < kHiddenLoads; ++i) {
        const int n = i * kThreads + thread, at = n / kRankPairs, pair = n % kRankPairs;
        const float two[2] = {factor.scale * h[i][0], factor.scale * h[i][1]};
        const float2 high = make_float2(rounded<T>(two[0]), rounded<T>(two[1]));
        high_TR[at][pair] = pack<T>(high.x, high.y);
        low_TR[at][pair] = pack<T>(two[0] - high.x, two[1] - high.y);
      }
      __syncthreads();
#pragma unroll
      for (int step = 0; step < kRanks / 16; ++step) {
        const int early = 8 * step + quarter, late = early + 4;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const auto& b = b_OR[16 * warp + 8 * n + group];
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            const int upper = 16 * tile + group, lower = upper + 8;
            multiply<T>(sum[tile][n], high_TR[upper][early], high_TR[lower][early],
                        high_TR[upper][late], high_TR[lower][late], b[early], b[late]);
            multiply<T>(sum[tile][n], low_TR[upper][early], low_TR[lower][early],
                        low_TR[upper][late], low_TR[lower][late], b[early], b[late]);
          }
        }
      }
      __syncthreads();
    }
  }
  if (waits) grid_dependency_wait();
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = rows[16 * tile + group + i / 2 * 8];
        const int output = first_output + 16 * warp + 8 * n + 2 * quarter + i % 2;
        if (row < 0 || output >= call.outputs) continue;
        const int64_t index = static_cast<int64_t>(row) * call.outputs + output;
        const float y = to_float(static_cast<const Y*>(call.y_TO)[index]);
        static_cast<Out*>(call.out_TO)[index] = from_float<Out>(y + sum[tile][n][i]);
      }
    }
  }
}

template <typename T>
void down(const LowRankDown& call, Stream stream) {
  const LowRankRows& by_row = call.by_row;
  if (by_row.tiles > 0) {
    const dim3 grid(static_cast<unsigned>(by_row.tiles), static_cast<unsigned>(by_row.most_chunks),
                    static_cast<unsigned>(by_row.most_splits));
    return launch(down_kernel<T, 1, true>, grid, dim3(kThreads), 0, stream, call);
  }
  int splits = 0;
  for (int i = 0; i < call.factors.count; ++i)
    splits = std::max(splits, call.factors.of[i].splits_of_range());
  const bool is_many = call.rows > kManyRows;
  const dim3 grid(blocks_of(call.rows, is_many ? 64 : 16),
                  static_cast<unsigned>(call.factors.chunks()), static_cast<unsigned>(splits));
  launch(is_many ? down_kernel<T, 4, false> : down_kernel<T, 1, false>, grid, dim3(kThreads), 0,
         stream, call);
}

template <typename T, typename Y, typename Out>
void up(const LowRankUp& call, Stream stream) {
  const unsigned outputs = blocks_of(call.outputs, kOutputs);
  if (call.by_row.tiles > 0)
    return launch(up_kernel<T, Y, Out, 1, true>,
                  dim3(static_cast<unsigned>(call.by_row.tiles), outputs), dim3(kThreads), 0,
                  stream, call);
  const bool is_many = call.rows > kManyRows;
  launch(is_many ? up_kernel<T, Y, Out, 4, false> : up_kernel<T, Y, Out, 1, false>,
         dim3(blocks_of(call.rows, is_many ? 64 : 16), outputs), dim3(kThreads), 0, stream, call);
}

template <typename T>
void up_of(const LowRankUp& call, Stream stream) {
  if (call.is_y_float) {
    call.is_out_float ? up<T, float, float>(call, stream) : up<T, float, T>(call, stream);
  } else {
    call.is_out_float ? up<T, T, float>(call, stream) : up<T, T, T>(call, stream);
  }
}

}  // namespace

void low_rank_down(Number number, const LowRankDown& call, Stream stream) {
  with_narrow_type(number, [&](auto x) { down<decltype(x)>(call, stream); });
}

void low_rank_sums(const LowRankDown& call, float* h_TR, Stream stream) {
  int most = 0;
  for (int i = 0; i < call.factors.count; ++i) most = std::max(most, call.factors.of[i].rank);
  const dim3 grid(blocks_of(static_cast<int64_t>(call.rows) * most, kThreads),
                  static_cast<unsigned>(call.factors.count));
  launch(sums_kernel, grid, dim3(kThreads), 0, stream, call, h_TR);
}

void low_rank_up(Number number, const LowRankUp& call, Stream stream) {
  with_narrow_type(number, [&](auto x) { up_of<decltype(x)>(call, stream); });
}

}  // namespace slime::kernels::cuda
