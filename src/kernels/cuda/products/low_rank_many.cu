/// What adapters add to products of many rows, by itself: stored for a product to add to, or as more inputs of one.

#include "kernels/cuda/products/low_rank_numbers.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace low_rank;

constexpr int kFillRows = 128, kFillOutputs = 128;  // of a thread block
constexpr int kFillWarps = 8, kFillThreads = 32 * kFillWarps;

/// A block: 128 rows, of which each warp has 16, and 128 outputs. Results pass through shared memory, for whole loads.
template <typename T>
__global__ void __launch_bounds__(kFillThreads)
    fill_kernel(const __grid_constant__ LowRankFill call) {
  constexpr int kTiles = kFillOutputs / 8, kPieces = kFillOutputs / kLowRankColumns;
  __shared__ uint32_t b_OR[kFillOutputs][kRankPairs + kPad];
  __shared__ __align__(16) uint32_t out_TO[kFillRows][kFillOutputs / 2 + kPad];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int first_row = blockIdx.x * kFillRows + 16 * warp,
            first_output = blockIdx.y * kFillOutputs;
  float sum[kTiles][4] = {};
  launch_dependents();
  bool waits = true;
  for (int which = 0; which < call.factors.count; ++which) {
    const LowRankFactor& factor = call.factors.of[which];
    if (factor.end <= first_output || factor.begin >= first_output + kFillOutputs) continue;
    const auto h = [&](int row, int rank) {
      if (row >= call.rows || rank >= factor.rank) return 0.0F;
      const int64_t index = static_cast<int64_t>(row) * call.h_pitch + factor.column + rank;
      return factor.scale * load_past_l1(call.h_TR + index);
    };
    for (int first_rank = 0; first_rank < factor.rank; first_rank += kRanks) {
      for (int n = thread; n < kFillOutputs * kRankPairs; n += kFillThreads) {
        const int output = factor.is_turned ? n % kFillOutputs : n / kRankPairs;
        const int pair = factor.is_turned ? n / kFillOutputs : n % kRankPairs;
        const float2 b =
            two_of_row(factor, first_output + output - factor.begin, first_rank + 2 * pair);
        b_OR[output][pair] = pack<T>(b.x, b.y);
      }
      if (waits) grid_dependency_wait();
      waits = false;
      __syncthreads();
#pragma unroll
      for (int step = 0; step < kRanks / 16; ++step) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = first_row + group + i % 2 * 8;
          const int rank = first_rank + 16 * step + 2 * quarter + i / 2 * 8;
          const float2 two = make_float2(h(row, rank), h(row, rank + 1));
          const float2 near = make_float2(rounded<T>(two.x), rounded<T>(two.y));
          high[i] = pack<T>(near.x, near.y);
          low[i] = pack<T>(two.x - near.x, two.y - near.y);
        }
        const int early = 8 * step + quarter, late = early + 4;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const auto& b = b_OR[8 * n + group];
          multiply<T>(sum[n], high[0], high[1], high[2], high[3], b[early], b[late]);
          multiply<T>(sum[n], low[0], low[1], low[2], low[3], b[early], b[late]);
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
