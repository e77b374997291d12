#include <algorithm>

#include "core/divide_up.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sparse/sparse.h"

/// Scores of an indexer: of row t and token s the sum over heads of weight[t, j] relu(query[t, j] . key[s]),
/// products and sums in float32.
///
/// Work items are tiles of 64 keys of a row. Thread blocks, two to a multiprocessor, share all items of the
/// step evenly, each has a run of them; which those are they find out from the positions of the rows, while
/// the kernel before this one still runs. Keys come into shared memory by cp.async, a tile ahead.
///
/// A warp has 16 heads, and a lane four of these and kLaneKeys keys: what it loads from shared memory for four
/// numbers of a head, 4 + kLaneKeys times 16 bytes, serves 16 kLaneKeys multiplications. Rows in shared
/// memory are 16 bytes longer than a multiple of 128, so that the rows of eight lanes lie in different banks.

namespace slime::kernels::cuda {
namespace {

constexpr int kPageTokens = static_cast<int>(kernels::kPageTokens);
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTileKeys = 64;
constexpr int kKeyLanes = 8, kHeadLanes = 4, kLaneHeads = 4, kWarpHeads = kHeadLanes * kLaneHeads;
constexpr int kPieces = kIndexSize / 4;       // of 16 bytes, of a key
constexpr int kPitch = 4 * (kIndexSize + 4);  // bytes
constexpr int kTileBytes = kTileKeys * kPitch;
constexpr int kBlocksOfProcessor = 2;

#if SLIME_HAS_DECODE

__device__ inline int keys_of(const IndexScores& a, int row) {
  return static_cast<int>(min(a.positions_T[row] + 1, a.most_keys));
}

/// Tiles before each row, into starts[0 .. rows]: an exclusive sum over the thread block.
__device__ inline void count_tiles(const IndexScores& a, int* starts, int* scratch) {
  const int thread = static_cast<int>(threadIdx.x), rows = static_cast<int>(a.num_rows);
  const int each = (rows + kThreads - 1) / kThreads, first = thread * each;
  const auto tiles_of = [&](int row) {
    const int keys = keys_of(a, row);
    return keys > a.most_chosen ? (keys + kTileKeys - 1) / kTileKeys : 0;
  };
  int own = 0;
  for (int i = 0; i < each; ++i)
    if (first + i < rows) own += tiles_of(first + i);
  int sum = own;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int before = shuffle_up(sum, offset);
    if (thread % 32 >= offset) sum += before;
  }
  if (thread % 32 == 31) scratch[thread / 32] = sum;
  __syncthreads();
  for (int warp = 0; warp < thread / 32; ++warp) sum += scratch[warp];
  int before = sum - own;
  for (int i = 0; i < each; ++i) {
    if (first + i >= rows) break;
    starts[first + i] = before;
    before += tiles_of(first + i);
  }
  if (thread == kThreads - 1) starts[rows] = sum;
  __syncthreads();
}

#endif

/// kHeadWarps: warps that share the heads, 16 each.
template <int kHeadWarps>
__global__ void __launch_bounds__(kThreads, kBlocksOfProcessor)
    index_scores_kernel(const IndexScores a) {
#if SLIME_HAS_DECODE
  constexpr int kKeyWarps = kWarps / kHeadWarps, kHeads = kWarpHeads * kHeadWarps;
  constexpr int kWarpKeys = kTileKeys / kKeyWarps, kLaneKeys = kWarpKeys / kKeyLanes;
  SLIME_DYNAMIC_SHARED(memory);
  __shared__ float sums[kHeadWarps][kTileKeys];
  __shared__ int starts[kMostIndexRows + 1], scratch[kWarps];
  launch_dependents();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int rows = static_cast<int>(a.num_rows);
  count_tiles(a, starts, scratch);
  const int64_t total = starts[rows];
  const int begin = static_cast<int>(total * blockIdx.x / gridDim.x),
            end = static_cast<int>(total * (blockIdx.x + 1) / gridDim.x);
  grid_dependency_wait();
  for (int64_t i = int64_t{blockIdx.x} * kWarps + warp; i < rows; i += int64_t{gridDim.x} * kWarps)
    reinterpret_cast<float4*>(a.keys)[int64_t{a.slot_T[i]} * kPieces + lane] =
        load_past_l1(reinterpret_cast<const float4*>(a.key_TD) + i * kPieces + lane);
  if (begin == end) return;

  // The last row with tiles before `begin`, or none.
  int row = 0;
  for (int step = static_cast<int>(kMostIndexRows); step > 0; step /= 2)
    if (row + step < rows && starts[row + step] <= begin) row += step;

  const SharedAddress tiles = shared_address(memory), query = tiles + 2 * kTileBytes;
  const auto load_tile = [&](int of_row, int item, int buffer) {
    const int own = keys_of(a, of_row) - 1;
    const int first = (item - starts[of_row]) * kTileKeys;
    const int32_t* pages = a.pages + a.page_starts[of_row];
#pragma unroll 4
    for (int key = warp; key < kTileKeys; key += kWarps) {
      const int position = min(first + key, own);  // behind the last key it is repeated
      const float* from = position == own
                              ? a.key_TD + int64_t{of_row} * kIndexSize
                              : a.keys + (int64_t{pages[position / kPageTokens]} * kPageTokens +
                                          position % kPageTokens) *
                                             kIndexSize;
      copy_piece(tiles + buffer * kTileBytes + key * kPitch + 16 * lane, from + 4 * lane, 16);
    }
  };
  const auto row_of = [&](int item, int from) {
    while (starts[from + 1] <= item) ++from;
    return from;
  };

  const int key_lane = lane % kKeyLanes, head_lane = lane / kKeyLanes;
  const int head_warp = warp % kHeadWarps, key_warp = warp / kHeadWarps;
  const int first_key = kWarpKeys * key_warp + key_lane;      // and every eighth behind it
  const int first_head = kWarpHeads * head_warp + head_lane;  // and every fourth
  float weight[kLaneHeads] = {};
  int loaded_row = -1;
  row = row_of(begin, row);
  load_tile(row, begin, 0);
  commit_pieces();
  for (int item = begin, buffer = 0; item < end; ++item, buffer ^= 1) {
    row = row_of(item, row);
    const bool is_fresh = row != loaded_row;
    if (is_fresh) {
      loaded_row = row;
      const float* from = a.query_TJD + int64_t{row} * kHeads * kIndexSize;
      for (int i = thread; i < kHeads * kPieces; i += kThreads)
        copy_piece(query + i / kPieces * kPitch + i % kPieces * 16, from + 4 * i, 16);
      commit_pieces();
#pragma unroll
      for (int h = 0; h < kLaneHeads; ++h)
        weight[h] = load_past_l1(a.weight_TJ + int64_t{row} * kHeads + first_head + kHeadLanes * h);
    }
    if (item + 1 < end) load_tile(row_of(item + 1, row), item + 1, buffer ^ 1);
    commit_pieces();
    wait_for_pieces_but<1>();
    __syncthreads();

    const unsigned char* key_line = memory + buffer * kTileBytes + first_key * kPitch;
    const unsigned char* query_line = memory + 2 * kTileBytes + first_head * kPitch;
    const auto four = [](const unsigned char* at) { return *reinterpret_cast<const float4*>(at); };
    float product[kLaneKeys][kLaneHeads] = {};
#pragma unroll 2
    for (int piece = 0; piece < kPieces; ++piece) {
      float4 q[kLaneHeads];
#pragma unroll
      for (int h = 0; h < kLaneHeads; ++h)
        q[h] = four(query_line + kHeadLanes * h * kPitch + 16 * piece);
#pragma unroll
      for (int k = 0; k < kLaneKeys; ++k) {
        const float4 x = four(key_line + kKeyLanes * k * kPitch + 16 * piece);
#pragma unroll
        for (int h = 0; h < kLaneHeads; ++h) {
          product[k][h] = fmaf(q[h].x, x.x, product[k][h]);
          product[k][h] = fmaf(q[h].y, x.y, product[k][h]);
          product[k][h] = fmaf(q[h].z, x.z, product[k][h]);
          product[k][h] = fmaf(q[h].w, x.w, product[k][h]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kLaneKeys; ++k) {
      float sum = 0;
#pragma unroll
      for (int h = 0; h < kLaneHeads; ++h) sum = fmaf(weight[h], fmaxf(product[k][h], 0.0F), sum);
      for (int offset = kKeyLanes; offset < 32; offset *= 2) sum += shuffle_xor(sum, offset);
      if (head_lane == 0) sums[head_warp][first_key + kKeyLanes * k] = sum;
    }
    __syncthreads();  // nobody reads this tile or, of another row, these queries any more
    const int position = (item - starts[row]) * kTileKeys + thread;
    if (thread < kTileKeys && position < keys_of(a, row)) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kHeadWarps; ++w) sum += sums[w][thread];
      const uint32_t bits = sum == 0 ? 0U : __float_as_uint(sum);
      a.score_TK[row * a.most_keys + position] =
          (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    }
  }
#endif
}

template <int kHeadWarps>
void run(const IndexScores& call, Stream stream) {
  constexpr auto kKernel = index_scores_kernel<kHeadWarps>;
  constexpr int kBytes = 2 * kTileBytes + kWarpHeads * kHeadWarps * kPitch;
  allow_shared_memory<kKernel>(kBytes);
  const int64_t most = call.num_rows * divide_up(call.most_keys, int64_t{kTileKeys});
  const int64_t blocks = std::min<int64_t>(most, kBlocksOfProcessor * num_processors());
  launch(kKernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), kBytes, stream, call);
}

}  // namespace

bool has_index_kernels(int64_t heads, int64_t size) {
  return has_decode_kernels() && size == kIndexSize && (heads == 16 || heads == 32 || heads == 64);
}

void index_scores(const IndexScores& call, Stream stream) {
  if (call.num_rows > kMostIndexRows || call.most_keys % 4 != 0)
    throw std::runtime_error("scores of an indexer are for 1024 rows, in rows of whole 16 bytes");
  switch (call.num_heads) {
    case 16:
      return run<1>(call, stream);
    case 32:
      return run<2>(call, stream);
    case 64:
      return run<4>(call, stream);
    default:
      throw std::runtime_error("indexers have 16, 32 or 64 heads");
  }
}

}  // namespace slime::kernels::cuda
