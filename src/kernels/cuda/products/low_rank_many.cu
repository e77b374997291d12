/// Additions of adapters to products of many rows: stored for a product to add to, or as more inputs of one.

#include <algorithm>

#include "kernels/cuda/products/low_rank_numbers.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace low_rank;

constexpr int kFillRows = 128, kFillOutputs = 64;  // of a thread block, and of a step
constexpr int kFillWarps = 8, kFillThreads = 32 * kFillWarps;
constexpr int kFillBlocks = 3;  // of a multiprocessor
/// Words of a line of staged factors: what the lanes of an instruction read lies in different banks.
constexpr int kFactorPitch = kRankPairs + 8;
constexpr int kHiddenBytes = kFillRows * kRanks * 4;  // of 32 ranks, each as two numbers of 16 bits
constexpr int kFewestHeld = 3;                        // times 32 ranks of h in shared memory

/// A step of a thread block: 32 ranks of one factor for 64 outputs, or none where no pair has any of them.
struct FillStep {
  int output = 0;  // the first one
  int which = 0;   // the factor; its count: none
  int first_rank = 0;
  int chunk = 0;  // 32 ranks each, counted over all factors

  /// From `which` on, the first factor that has some of the outputs.
  __device__ void find(const LowRankFactors& factors) {
    while (which < factors.count &&
           (factors.of[which].end <= output || factors.of[which].begin >= output + kFillOutputs)) {
      chunk += rounded_rank(factors.of[which]) / kRanks;
      ++which;
    }
  }
  __device__ static FillStep first_of(const LowRankFactors& factors, int output) {
    FillStep step{.output = output};
    step.find(factors);
    return step;
  }
  __device__ bool adds(const LowRankFactors& factors) const { return which < factors.count; }
  /// The one behind it: of the same outputs if there is one, else of the next ones.
  __device__ FillStep next(const LowRankFactors& factors) const {
    FillStep step = *this;
    if (adds(factors)) {
      step.first_rank += kRanks;
      ++step.chunk;
      if (step.first_rank < factors.of[which].rank) return step;
      step.first_rank = 0;
      ++step.which;
      step.find(factors);
      if (step.adds(factors)) return step;
    }
    return first_of(factors, output + kFillOutputs);
  }
};

/// The line of an output in staged factors, so that a lane's accumulators are of eight neighbouring outputs.
__device__ inline int line_of_output(int output) {
  return output / 32 * 32 + output % 8 / 2 * 8 + output % 32 / 8 * 2 + output % 2;
}

/// A thread's share of a step's factor: loaded while the step before multiplies.
class FillFactor {
 public:
  __device__ void load(const LowRankFactor& factor, const FillStep& step, bool is_whole) {
    const int m = step.output - factor.begin;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      four_[i] = factor.is_turned
                     ? four_of_line(factor, m + turned_output(),
                                    step.first_rank + 2 * turned_pair() + i, is_whole)
                     : four_of_line(factor, m + output(i),
                                    step.first_rank + 4 * (threadIdx.x % kFours), is_whole);
    }
  }
  template <typename T>
  __device__ void store(bool is_turned, uint32_t (&b_OR)[kFillOutputs][kFactorPitch]) const {
    if (is_turned) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        b_OR[line_of_output(turned_output() + k)][turned_pair()] =
            pack<T>(number_of_four(four_[0], k), number_of_four(four_[1], k));
      return;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<uint2*>(&b_OR[line_of_output(output(i))][2 * (threadIdx.x % kFours)]) =
          make_uint2(pack<T>(four_[i].x, four_[i].y), pack<T>(four_[i].z, four_[i].w));
  }

 private:
  static constexpr int kFours = kRanks / 4;
  static_assert(kFillOutputs * kFours == 2 * kFillThreads);

  // Not turned, two times four ranks of an output; turned, two ranks of four outputs.
  __device__ static int output(int i) { return (i * kFillThreads + threadIdx.x) / kFours; }
  __device__ static int turned_pair() { return threadIdx.x % 8 + threadIdx.x / 128 * 8; }
  __device__ static int turned_output() { return threadIdx.x / 8 % 16 * 4; }

  float4 four_[2];
};

/// Four ranks of h of a row as an instruction takes them: rounded, and what rounding leaves.
__device__ inline uint4& hidden_piece(unsigned char* of_chunk, int row, int piece) {
  return reinterpret_cast<uint4*>(of_chunk)[row * (kRanks / 4) + (piece ^ row % 2 * 4)];
}

/// Ranks [first_rank, first_rank + 32) of the block's rows.
template <typename T>
__device__ inline void hold_hidden(const LowRankFill& call, const LowRankFactor& factor,
                                   int first_rank, unsigned char* of_chunk) {
  constexpr int kPieces = kRanks / 4;
  const float* const h_of_factor = call.h_TR + factor.column;
  const bool is_whole = reinterpret_cast<uintptr_t>(h_of_factor) % 16 == 0 && call.h_pitch % 4 == 0;
#pragma unroll
  for (int i = 0; i < kFillRows * kPieces / kFillThreads; ++i) {
    const int n = i * kFillThreads + threadIdx.x, row = n / kPieces, piece = n % kPieces;
    const int of_matrix = blockIdx.x * kFillRows + row, rank = first_rank + 4 * piece;
    float4 h = make_float4(0, 0, 0, 0);
    if (of_matrix < call.rows && rank < factor.rank)
      h = four_of(h_of_factor + static_cast<int64_t>(of_matrix) * call.h_pitch + rank,
                  factor.rank - rank, is_whole);
    uint32_t high[2], low[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float2 two = make_float2(factor.scale * number_of_four(h, 2 * k),
                                     factor.scale * number_of_four(h, 2 * k + 1));
      const float2 near = make_float2(rounded<T>(two.x), rounded<T>(two.y));
      high[k] = pack<T>(near.x, near.y);
      low[k] = pack<T>(two.x - near.x, two.y - near.y);
    }
    hidden_piece(of_chunk, row, piece) = make_uint4(high[0], high[1], low[0], low[1]);
  }
}

/// A block: 128 rows, of which each warp has 16, and a range of outputs, 64 after 64. Bound by writing them: factors of a
/// step are on their way while the one before multiplies, and lanes write eight neighbouring outputs. `holds_all`: of h all ranks
/// are in shared memory, else those of a step, read again at each.
template <typename T>
__global__ void __launch_bounds__(kFillThreads, kFillBlocks)
    fill_kernel(const __grid_constant__ LowRankFill call, bool holds_all) {
  constexpr int kTiles = kFillOutputs / 8, kTilesOfPiece = 4;
  SLIME_DYNAMIC_SHARED(hidden);
  __shared__ __align__(16) uint32_t b_OR[2][kFillOutputs][kFactorPitch];
  const LowRankFactors& factors = call.factors;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int tiles = (call.outputs + kFillOutputs - 1) / kFillOutputs;
  const int begin = tiles * blockIdx.y / gridDim.y * kFillOutputs;
  const int end = tiles * (blockIdx.y + 1) / gridDim.y * kFillOutputs;
  launch_dependents();
  FillFactor ahead;
  FillStep step = FillStep::first_of(factors, begin);
  const auto load = [&](const FillStep& of) {
    if (of.output < end && of.adds(factors))
      ahead.load(factors.of[of.which], of, has_whole_fours(factors.of[of.which]));
  };
  const auto store = [&](const FillStep& of, int buffer) {
    if (of.adds(factors)) ahead.store<T>(factors.of[of.which].is_turned, b_OR[buffer]);
  };
  load(step);
  store(step, 0);
  grid_dependency_wait();
  if (holds_all) {
    for (int which = 0, chunk = 0; which < factors.count; ++which) {
      for (int rank = 0; rank < factors.of[which].rank; rank += kRanks, ++chunk)
        hold_hidden<T>(call, factors.of[which], rank, hidden + chunk * kHiddenBytes);
    }
  }
  __syncthreads();
  float sum[kTiles][4] = {};
  for (int buffer = 0; step.output < end; buffer ^= 1) {
    const FillStep next = step.next(factors);
    load(next);
    if (step.adds(factors)) {
      if (!holds_all) {
        hold_hidden<T>(call, factors.of[step.which], step.first_rank, hidden);
        __syncthreads();
      }
      unsigned char* const of_chunk = hidden + (holds_all ? step.chunk * kHiddenBytes : 0);
      // Which of its four ranks the instruction calls which k does not matter.
#pragma unroll
      for (int of_two = 0; of_two < kRanks / 16; ++of_two) {
        const uint4 upper = hidden_piece(of_chunk, 16 * warp + group, 4 * of_two + quarter);
        const uint4 lower = hidden_piece(of_chunk, 16 * warp + group + 8, 4 * of_two + quarter);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const uint2 b = *reinterpret_cast<const uint2*>(
              &b_OR[buffer][8 * n + group][8 * of_two + 2 * quarter]);
          multiply<T>(sum[n], upper.x, lower.x, upper.y, lower.y, b.x, b.y);
          multiply<T>(sum[n], upper.z, lower.z, upper.w, lower.w, b.x, b.y);
        }
      }
    }
    if (next.output != step.output) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = blockIdx.x * kFillRows + 16 * warp + group + 8 * half;
#pragma unroll
        for (int n = 0; n < kTiles; n += kTilesOfPiece) {
          const int output = step.output + 8 * n + kLowRankColumns * quarter;
          if (row >= call.rows || output >= call.outputs) continue;
          uint4 piece;
          piece.x = pack<T>(sum[n][2 * half], sum[n][2 * half + 1]);
          piece.y = pack<T>(sum[n + 1][2 * half], sum[n + 1][2 * half + 1]);
          piece.z = pack<T>(sum[n + 2][2 * half], sum[n + 2][2 * half + 1]);
          piece.w = pack<T>(sum[n + 3][2 * half], sum[n + 3][2 * half + 1]);
          *reinterpret_cast<uint4*>(static_cast<T*>(call.out_TO) +
                                    static_cast<int64_t>(row) * call.outputs + output) = piece;
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (float& of : sum[n]) of = 0;
      }
    }
    if (next.output < end) store(next, buffer ^ 1);
    __syncthreads();
    step = next;
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
  const int chunks = call.factors.chunks();
  const int room = shared_bytes_of_processor() / 2 - 16 * 1024;
  const bool holds_all = chunks <= std::max(kFewestHeld, room / kHiddenBytes);
  const int row_blocks = static_cast<int>(blocks_of(call.rows, kFillRows));
  const int tiles = static_cast<int>(blocks_of(call.outputs, kFillOutputs));
  const int ranges = std::clamp(kFillBlocks * num_processors() / std::max(row_blocks, 1), 1, tiles);
  with_narrow_type(number, [&](auto x) {
    using T = decltype(x);
    allow_shared_memory<fill_kernel<T>>(std::max(kFewestHeld * kHiddenBytes, room));
    launch(fill_kernel<T>, dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(ranges)),
           dim3(kFillThreads), (holds_all ? chunks : 1) * kHiddenBytes, stream, call, holds_all);
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
