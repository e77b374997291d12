/// The way down of many rows: h = x A^T with all splits of the sum in one thread block.
///
/// Bound by reading x, which a thread block does once for its 128 rows, through a pipeline of asynchronous copies. The
/// factor comes from the second-level cache in float32, half as many bytes as x. The sums have the order of
/// low_rank_down() and low_rank_sums(): 16 of each 64 columns make a chain of instructions, four chains a split.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/products/low_rank_numbers.cuh"

namespace slime::kernels::cuda {
namespace {

using namespace low_rank;

constexpr int kDownRows = 128;  // of a thread block, 32 of each warp
constexpr int kDownColumns = 64;
constexpr int kChains = kDownColumns / 16;
constexpr int kLinePitch = kDownColumns / 2 + kPad;  // words of a row of x in shared memory
// Floats of a line of the factor: what the lanes of an instruction read lies in different banks.
constexpr int kTurnedPitch = kDownColumns + 8, kPlainPitch = kRanks + 4;
constexpr int kXBytes = kDownRows * kLinePitch * 4, kFactorBytes = kRanks * kTurnedPitch * 4;
constexpr int kStageBytes = kXBytes + kFactorBytes;
static_assert(kDownColumns * kPlainPitch == kRanks * kTurnedPitch);
constexpr int kMostStages = 4, kFewestStages = 2;

#if SLIME_HAS_PIECES

/// Copies that a thread asks for: columns [column, column + 64) of the block's rows, and of the factor's 32 ranks. Zero
/// outside of the factor and from `end` on.
template <typename T>
__device__ inline void copy_stage(const LowRankDown& call, const LowRankFactor& factor,
                                  int first_row, int first_rank, int column, SharedAddress stage) {
  constexpr int kPieces = kDownColumns / 8;
  const int thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < kDownRows * kPieces / kThreads; ++i) {
    const int n = i * kThreads + thread, row = n / kPieces, at = column + n % kPieces * 8;
    const bool is_there = first_row + row < call.rows && at < factor.end;
    const T* const from =
        static_cast<const T*>(call.x_TI) + (is_there ? (first_row + row) * call.pitch + at : 0);
    copy_piece(stage + (row * kLinePitch + n % kPieces * 4) * 4, from, is_there ? 16 : 0);
  }
#pragma unroll
  for (int i = 0; i < kRanks * kDownColumns / 4 / kThreads; ++i) {
    const int n = i * kThreads + thread;
    // Four columns of a rank, or four ranks of a column.
    const int line = factor.is_turned ? n / (kDownColumns / 4) : n / (kRanks / 4);
    const int four = factor.is_turned ? n % (kDownColumns / 4) * 4 : n % (kRanks / 4) * 4;
    const int rank = first_rank + (factor.is_turned ? line : four);
    const int m = column - factor.begin + (factor.is_turned ? four : line);
    const bool is_there = rank < factor.rank && m < factor.end - factor.begin;
    const int64_t index = factor.is_turned ? rank * factor.pitch + m : m * factor.pitch + rank;
    const int pitch = factor.is_turned ? kTurnedPitch : kPlainPitch;
    copy_piece(stage + kXBytes + (line * pitch + four) * 4, factor.values + (is_there ? index : 0),
               is_there ? 16 : 0);
  }
}

#endif

/// A block: 128 rows, 32 ranks of one factor. blockIdx.x: the chunk of ranks, so that those of the same rows run together and
/// x is in the second-level cache for all but the first.
template <typename T, int kStages>
__global__ void __launch_bounds__(kThreads)
    down_many_kernel(const __grid_constant__ LowRankDown call) {
#if SLIME_HAS_PIECES
  SLIME_DYNAMIC_SHARED(memory);
  const SharedAddress stages = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int first_row = blockIdx.y * kDownRows;
  launch_dependents();
  int which = 0, first_rank = blockIdx.x * kRanks;
  while (first_rank >= rounded_rank(call.factors.of[which])) {
    first_rank -= rounded_rank(call.factors.of[which]);
    ++which;
  }
  const LowRankFactor& factor = call.factors.of[which];
  const int tiles = (factor.end - factor.begin + kDownColumns - 1) / kDownColumns;
  grid_dependency_wait();
  const auto ask = [&](int tile) {
    if (tile < tiles)
      copy_stage<T>(call, factor, first_row, first_rank, factor.begin + tile * kDownColumns,
                    stages + tile % kStages * kStageBytes);
    commit_pieces();
  };
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) ask(tile);

  constexpr int kRankTiles = kRanks / 8;
  float chain[kChains][2][kRankTiles][4] = {}, total[2][kRankTiles][4] = {};
  // The lane's line of the four matrices of 8 rows and 8 columns that an instruction takes of x.
  const SharedAddress x_of_lane =
      stages + ((32 * warp + lane % 16) * kLinePitch + lane / 16 * 4) * 4;
  const bool is_turned = factor.is_turned;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_pieces_but<kStages - 2>();
    __syncthreads();  // the stage is there, and nobody reads the one before, which is asked for next
    ask(tile + kStages - 1);
    const int stage = tile % kStages * kStageBytes;
    const float* const a = reinterpret_cast<const float*>(memory + stage + kXBytes);
#pragma unroll
    for (int of_four = 0; of_four < kChains; ++of_four) {
      uint32_t x[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_matrices(x[half], x_of_lane + stage + (16 * half * kLinePitch + 8 * of_four) * 4);
#pragma unroll
      for (int n = 0; n < kRankTiles; ++n) {
        uint32_t b[2];
#pragma unroll
        for (int late = 0; late < 2; ++late) {
          const int rank = 8 * n + group, m = 16 * of_four + 8 * late + 2 * quarter;
          if (is_turned) {
            const float2 two = *reinterpret_cast<const float2*>(a + rank * kTurnedPitch + m);
            b[late] = pack<T>(two.x, two.y);
          } else {
            b[late] = pack<T>(a[m * kPlainPitch + rank], a[(m + 1) * kPlainPitch + rank]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply<T>(chain[of_four][half][n], x[half][0], x[half][1], x[half][2], x[half][3], b[0],
                      b[1]);
      }
    }
    if ((tile + 1) % (kLowRankSplit / kDownColumns) != 0 && tile + 1 < tiles) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kRankTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float of_split = 0;
#pragma unroll
          for (int of_four = 0; of_four < kChains; ++of_four) {
            of_split += chain[of_four][half][n][i];
            chain[of_four][half][n][i] = 0;
          }
          total[half][n][i] += of_split;
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < kRankTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + 32 * warp + 16 * half + group + i / 2 * 8;
        const int rank = first_rank + 8 * n + 2 * quarter + i % 2;
        if (row >= call.rows || rank >= factor.rank) continue;
        const int64_t index = static_cast<int64_t>(row) * call.h_pitch + factor.column + rank;
        call.h_STR[index] = total[half][n][i];
        if (call.scaled_TR != nullptr)
          static_cast<T*>(call.scaled_TR)[index] = from_float<T>(factor.scale * total[half][n][i]);
      }
    }
  }
#endif
}

/// Stages of a thread block, two of which share a multiprocessor.
bool has_room_for_most_stages() {
  return shared_bytes_of_processor() / 2 >= kMostStages * kStageBytes + 1024;
}

bool has_whole_pieces(const LowRankFactor& factor) {
  const int lines = factor.is_turned ? factor.end - factor.begin : factor.rank;
  return reinterpret_cast<uintptr_t>(factor.values) % 16 == 0 && factor.pitch % 4 == 0 &&
         lines % 4 == 0;
}

template <typename T, int kStages>
void run_down_many(const LowRankDown& call, Stream stream) {
  allow_shared_memory<down_many_kernel<T, kStages>>(kStages * kStageBytes);
  launch(down_many_kernel<T, kStages>,
         dim3(static_cast<unsigned>(call.factors.chunks()), blocks_of(call.rows, kDownRows)),
         dim3(kThreads), kStages * kStageBytes, stream, call);
}

}  // namespace

bool has_low_rank_down_many(const LowRankDown& call) {
  const int blocks = static_cast<int>(blocks_of(call.rows, kDownRows)) * call.factors.chunks();
  return call.by_row.tiles == 0 && 4 * blocks >= 3 * num_processors() &&
         std::all_of(call.factors.of, call.factors.of + call.factors.count, has_whole_pieces);
}

void low_rank_down_many(Number number, const LowRankDown& call, Stream stream) {
  with_narrow_type(number, [&](auto x) {
    using T = decltype(x);
    has_room_for_most_stages() ? run_down_many<T, kMostStages>(call, stream)
                               : run_down_many<T, kFewestStages>(call, stream);
  });
}

}  // namespace slime::kernels::cuda
