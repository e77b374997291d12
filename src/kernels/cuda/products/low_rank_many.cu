/// Additions of adapters to products of many rows: stored for a product to add to, or as more inputs of one.

#include "kernels/cuda/products/low_rank_numbers.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace low_rank;

constexpr int kFillRows = 128, kFillOutputs = 128;  // of a thread block
constexpr int kFillWarps = 8, kFillThreads = 32 * kFillWarps;

/// Ranks [first_rank, first_rank + 32) of the factor for the block's outputs, of which the first is m: four numbers of a
/// line at once, whichever way it lies.
template <typename T>
__device__ inline void stage(const LowRankFactor& factor, int m, int first_rank, bool is_whole,
                             uint32_t (&b_OR)[kFillOutputs][kRankPairs + kPad]) {
  constexpr int kFours = kRanks / 4, kOutputFours = kFillOutputs / 4;
  if (!factor.is_turned) {
#pragma unroll
    for (int i = 0; i < kFillOutputs * kFours / kFillThreads; ++i) {
      const int n = i * kFillThreads + threadIdx.x, output = n / kFours, four = n % kFours;
      const float4 b = four_of_line(factor, m + output, first_rank + 4 * four, is_whole);
      *reinterpret_cast<uint2*>(&b_OR[output][2 * four]) =
          make_uint2(pack<T>(b.x, b.y), pack<T>(b.z, b.w));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kRankPairs * kOutputFours / kFillThreads; ++i) {
    const int n = i * kFillThreads + threadIdx.x, pair = n / kOutputFours,
              output = n % kOutputFours * 4;
    const float4 b = four_of_line(factor, m + output, first_rank + 2 * pair, is_whole);
    const float4 next = four_of_line(factor, m + output, first_rank + 2 * pair + 1, is_whole);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      b_OR[output + k][pair] = pack<T>(number_of_four(b, k), number_of_four(next, k));
  }
}

/// A block: 128 rows, of which each warp has 16, and 128 outputs. Results pass through shared memory, for whole loads.
template <typename T>
__global__ void __launch_bounds__(kFillThreads)
    fill_kernel(const __grid_constant__ LowRankFill call) {
  constexpr int kTiles = kFillOutputs / 8, kPieces = kFillOutputs / kLowRankColumns;
  __shared__ __align__(16) uint32_t b_OR[kFillOutputs][kRankPairs + kPad];
  __shared__ __align__(16) uint32_t out_TO[kFillRows][kFillOutputs / 2 + kPad];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int first_row = blockIdx.x * kFillRows + 16 * warp,
            first_output = blockIdx.y * kFillOutputs;
  float sum[kTiles][4] = {};
  launch_dependents();
  bool waits = true;
  for (int which = 0; which < call.factors.count; ++which) {
    const LowRankFactor& factor = call.factors.of[which];
    if (factor.end <= first_output || factor.begin >= first_output + kFillOutputs) continue;
    const bool is_whole = has_whole_fours(factor);
    const float* const h_of_factor = call.h_TR + factor.column;
    const bool has_whole_h =
        reinterpret_cast<uintptr_t>(h_of_factor) % 16 == 0 && call.h_pitch % 4 == 0;
    const auto four_ranks = [&](int row, int rank) {
      if (row >= call.rows || rank >= factor.rank) return make_float4(0, 0, 0, 0);
      const float4 h = four_of(h_of_factor + static_cast<int64_t>(row) * call.h_pitch + rank,
                               factor.rank - rank, has_whole_h);
      return make_float4(factor.scale * h.x, factor.scale * h.y, factor.scale * h.z,
                         factor.scale * h.w);
    };
    for (int first_rank = 0; first_rank < factor.rank; first_rank += kRanks) {
      stage<T>(factor, first_output - factor.begin, first_rank, is_whole, b_OR);
      if (waits) grid_dependency_wait();
      waits = false;
      float4 h[kRanks / 16][2];
#pragma unroll
      for (int step = 0; step < kRanks / 16; ++step) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          h[step][half] =
              four_ranks(first_row + group + 8 * half, first_rank + 16 * step + 4 * quarter);
      }
      __syncthreads();
      // Which of its four ranks the instruction calls which k does not matter.
#pragma unroll
      for (int step = 0; step < kRanks / 16; ++step) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4& four = h[step][i % 2];
          const float2 two = i < 2 ? make_float2(four.x, four.y) : make_float2(four.z, four.w);
          const float2 near = make_float2(rounded<T>(two.x), rounded<T>(two.y));
          high[i] = pack<T>(near.x, near.y);
          low[i] = pack<T>(two.x - near.x, two.y - near.y);
        }
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const uint2 b =
              *reinterpret_cast<const uint2*>(&b_OR[8 * n + group][8 * step + 2 * quarter]);
          multiply<T>(sum[n], high[0], high[1], high[2], high[3], b.x, b.y);
          multiply<T>(sum[n], low[0], low[1], low[2], low[3], b.x, b.y);
        }
      }
      __syncthreads();
    }
  }
  if (waits) grid_dependency_wait();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      out_TO[16 * warp + group + 8 * half][4 * n + quarter] =
          pack<T>(sum[n][2 * half], sum[n][2 * half + 1]);
  }
  sync_lanes();
  for (int n = lane; n < 16 * kPieces; n += 32) {
    const int row = n / kPieces, output = first_output + n % kPieces * kLowRankColumns;
    if (first_row + row >= call.rows || output >= call.outputs) continue;
    T* const out = static_cast<T*>(call.out_TO) +
                   static_cast<int64_t>(first_row + row) * call.outputs + output;
    *reinterpret_cast<uint4*>(out) =
        *reinterpret_cast<const uint4*>(&out_TO[16 * warp + row][n % kPieces * 4]);
  }
}

/// A group of 32 lanes: the ranks of a chunk, in one line of x or of the matrix.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    columns_kernel(const __grid_constant__ LowRankColumns call) {
  const int rank_of_chunk = threadIdx.x % 32, line = blockIdx.x * kWarps + threadIdx.x / 32;
  launch_dependents();
  grid_dependency_wait();
  if (line >= call.rows + call.outputs) return;
  int which = 0, first_rank = blockIdx.y * kRanks;
  while (first_rank >= rounded_rank(call.factors.of[which])) {
    first_rank -= rounded_rank(call.factors.of[which]);
    ++which;
  }
  const LowRankFactor& factor = call.factors.of[which];
  const int rank = first_rank + rank_of_chunk;
  const bool is_row = line < call.rows;
  float high = 0, low = 0;
  if (is_row && rank < factor.rank) {
    const float h =
        factor.scale * call.h_TR[static_cast<int64_t>(line) * call.h_pitch + factor.column + rank];
    high = rounded<T>(h);
    low = h - high;
  } else if (!is_row) {
    high = low = two_of_row(factor, line - call.rows - factor.begin, rank).x;
  }
  const int of_matrix = line - call.rows;
  T* const to = static_cast<T*>(is_row ? call.h_TC : call.b_OC) +
                (static_cast<int64_t>(is_row ? line : of_matrix) * gridDim.y + blockIdx.y) *
                    LowRankColumns::kOfChunk;
  to[rank_of_chunk] = from_float<T>(high);
  to[kRanks + rank_of_chunk] = from_float<T>(low);
}

}  // namespace

void low_rank_fill(Number number, const LowRankFill& call, Stream stream) {
  const dim3 grid(blocks_of(call.rows, kFillRows), blocks_of(call.outputs, kFillOutputs));
  with_narrow_type(number, [&](auto x) {
    launch(fill_kernel<decltype(x)>, grid, dim3(kFillThreads), 0, stream, call);
  });
}

void low_rank_columns(Number number, const LowRankColumns& call, Stream stream) {
  const dim3 grid(blocks_of(static_cast<int64_t>(call.rows) + call.outputs, kWarps),
                  static_cast<unsigned>(call.factors.chunks()));
  with_narrow_type(number, [&](auto x) {
    launch(columns_kernel<decltype(x)>, grid, dim3(kThreads), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
