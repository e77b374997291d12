#include "kernels/cuda/experts/norm_route.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/tensor_core.cuh"

/// Thread blocks of a cluster; GPUs before 9.0 have none, and the kernel's body is empty there.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define SLIME_CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define SLIME_CLUSTER_OF(blocks)
#endif

namespace slime::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

/// A cluster of thread blocks has kRows rows; each block has a slice of their columns, which it adds
/// up, norms and multiplies with the slice of all experts (m16n8k16, rows are M). The partial sums
/// of kRowsOfRank rows then go to one thread block each, which chooses for those. Each number that goes to
/// another thread block counts at a barrier there: the barrier of the cluster is a fence for all of
/// memory, and waits until sums and norms have been written.
constexpr int kRanks = 8, kWarps = 16, kThreads = 32 * kWarps;
constexpr int kTileRows = 16;
/// Threads whose registers must fit into a multiprocessor: 64 registers each. So a thread block with
/// few rows runs beside one of the product before it, and has the router's weights when that one ends.
constexpr int kThreadsOfFewRegisters = 1024;
/// Rows of a cluster, 16 or 32: all clusters should run at once.
constexpr int rows_of_rank(int rows) { return rows / kRanks; }
constexpr int kMostExperts = 512, kMostHidden = 8192, kMostVisits = 32;
/// A lane holds 16 bytes of a router's row, a group of four lanes 32 columns: two instructions.
constexpr int kLaneColumns = 8, kBlockColumns = 4 * kLaneColumns, kTileExperts = 8;
/// Blocks of columns whose weights a warp holds in registers at once.
constexpr int kHeld = 8;
/// So few rows that every thread block adds up whole rows rather than asking the others.
constexpr int kMostAlone = 2;

struct Slices {
  int columns = 0;  // of a thread block, a multiple of kBlockColumns; what lies behind H is zero
  int pitch = 0;    // of rows in shared memory
  int bytes = 0;    // of shared memory: rows of x, weights of the norm, partial sums

  __host__ __device__ Slices(int hidden, int experts, int rows) {
    columns = ((hidden + kRanks - 1) / kRanks + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
    pitch = columns + kLaneColumns;
    bytes = 2 * (rows * pitch + columns) + 4 * rows * experts;
  }
};

/// Order of floats as unsigned numbers. Zero is below all of them, NaN included.
__device__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t key = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return key == 0 ? 1 : key;
}

/// The expert of visit `lane`, by one warp, of which a lane has the experts lane, lane + 32 and so on.
/// scores: of one row's experts; with softmax they come as products with the router. bias: of selection.
template <int kEach>
__device__ int choose(const RouteCall& a, float* scores, const float* bias) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float score[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = lane + 32 * j;
    score[j] = e < a.experts ? scores[e] : -INFINITY;
  }
  if (!a.is_sigmoid) {
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (const float s : score) most = fmaxf(most, s);
    for (int offset = 16; offset > 0; offset /= 2)
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, offset));
#pragma unroll
    for (float& s : score) {
      s = expf(s - most);
      sum += s;
    }
    sum = 1.0F / warp_sum(sum);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      score[j] *= sum;
      if (lane + 32 * j < a.experts) scores[lane + 32 * j] = score[j];
    }
  }
  uint32_t key[kEach];  // zero: chosen already, or no expert
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = lane + 32 * j;
    key[j] = 0;
    if (e >= a.experts) continue;
    key[j] = ordered(score[j] + bias[e]);
  }
  int chosen = 0;  // of visit `lane`
#pragma unroll 1
  for (int k = 0; k < a.per_token; ++k) {
    uint32_t best = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) best = max(best, key[j]);
    best = __reduce_max_sync(0xffffffffU, best);
    unsigned first = kMostExperts;
#pragma unroll
    for (int j = kEach - 1; j >= 0; --j)
      if (key[j] == best) first = lane + 32 * j;
    first = __reduce_min_sync(0xffffffffU, first);
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (first == static_cast<unsigned>(lane + 32 * j)) key[j] = 0;
    if (lane == k) chosen = static_cast<int>(first);
  }
  return chosen;
}

/// What the visit of this lane counts, by the warp that chose.
__device__ void weigh(const RouteCall& a, int row, const float* scores, int chosen) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  const bool has_visit = lane < a.per_token;
  float weight = has_visit ? scores[chosen] : 0.0F, total = 0;
  if (a.normalizes) {
#pragma unroll 4
    for (int k = 0; k < a.per_token; ++k) total += __shfl_sync(0xffffffffU, weight, k);
    weight /= total + 1e-20F;
  }
  if (!has_visit) return;
  const int64_t at = static_cast<int64_t>(row) * a.per_token + lane;
  a.expert_TK[at] = chosen;
  if (a.chosen_TK != nullptr)
    a.chosen_TK[row * a.chosen_stride + lane] = static_cast<int16_t>(chosen);
  a.weight_TK[at] = weight * a.scaling;
}

__device__ float4 unpack_four(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ uint2 pack_four(const float4& x) {
  return make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
}

/// Four columns of rows of the residual stream each, after the addition, rounded. Everything is asked
/// for before it is added up.
template <int kPieces>
__device__ void add_up(const RouteCall& a, const int (&row)[kPieces], const int (&four)[kPieces],
                       const bool (&is_there)[kPieces], uint2 (&sum)[kPieces]) {
  const int fours = a.hidden / 4;
  const int64_t stride = static_cast<int64_t>(a.rows) * fours;
  uint2 update[kPieces], bias[kPieces];
  int64_t at[kPieces];
  // Past the L1 cache, which may hold what another kernel read here before it was complete.
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    at[p] = static_cast<int64_t>(row[p]) * fours + four[p];
    update[p] = bias[p] = make_uint2(0, 0);
    if (!is_there[p]) continue;
    sum[p] = __ldcg(static_cast<const uint2*>(a.x_TH) + at[p]);
    if (a.norm_H == nullptr) continue;
    if (a.update_TH != nullptr) update[p] = __ldcg(static_cast<const uint2*>(a.update_TH) + at[p]);
    if (a.bias_H != nullptr) bias[p] = static_cast<const uint2*>(a.bias_H)[four[p]];
  }
  if (a.norm_H == nullptr) return;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (!is_there[p]) continue;
    float4 added = unpack_four(bias[p]);
    add_to(added, unpack_four(update[p]));
    if (a.partials_STH != nullptr)
      add_partials<kPieces == 2 ? 2 : 1>(
          added, reinterpret_cast<const float4*>(a.partials_STH) + at[p], stride, a.splits);
    added = unpack_four(pack_four(added));  // as where the product's result is stored
    const float4 held = unpack_four(sum[p]);
    sum[p] = pack_four(
        make_float4(held.x + added.x, held.y + added.y, held.z + added.z, held.w + added.w));
  }
}

__device__ float squares_of(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
}

/// kAlone: up to kMostAlone rows, with a norm.
template <int kRows, bool kAlone>
__global__ void SLIME_CLUSTER_OF(kRanks)
    __launch_bounds__(kAlone ? kThreadsOfFewRegisters : kThreads)
        norm_route_kernel(const RouteCall a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = __nv_bfloat16;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float squares[kRows][kRanks], scratch[33], bias[kMostExperts];
  __shared__ uint64_t squares_full, partials_full;
  constexpr int kRowsOfRank = rows_of_rank(kRows);
  const Slices slices(a.hidden, a.experts, kRows);
  auto* shared_x = reinterpret_cast<T*>(memory);  // [kRows, pitch]
  auto* shared_norm = shared_x + kRows * slices.pitch;
  auto* partials = reinterpret_cast<float*>(shared_norm + slices.columns);
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int first_row = static_cast<int>(blockIdx.x) / kRanks * kRows;
  const int rows = min(kRows, a.rows - first_row);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // Rows that this rank chooses for.
  const int own_rows = max(0, min(kRowsOfRank, rows - rank * kRowsOfRank));
  if (threadIdx.x == 0) {
    for (uint64_t* barrier : {&squares_full, &partials_full})
      init_barrier(shared_address(barrier), 1);
    fence_barrier_init();
    arrive_expect_tx(shared_address(&squares_full), 4 * kRanks * rows);
    arrive_expect_tx(shared_address(&partials_full), 4 * kRanks * own_rows * a.experts);
  }
  const int begin = slices.columns * rank;
  const int columns = max(0, min(slices.columns, a.hidden - begin));  // that are there
  const int blocks = slices.columns / kBlockColumns;
  const int tiles = (a.experts + kTileExperts - 1) / kTileExperts;
  const auto* router = static_cast<const T*>(a.router_EH);
  uint4 held[kHeld];
  const auto load = [&](int tile, int first) {
    const int expert = tile * kTileExperts + lane / 4;
    const T* from = router + static_cast<int64_t>(expert) * a.hidden + begin;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int column = (first + h) * kBlockColumns + lane % 4 * kLaneColumns;
      held[h] = expert < a.experts && column < columns
                    ? *reinterpret_cast<const uint4*>(from + column)
                    : make_uint4(0, 0, 0, 0);
    }
  };
  launch_dependents();
  if (warp < tiles) load(warp, 0);
  const bool has_norm = kAlone || a.norm_H != nullptr;
  if (has_norm) {
    const auto* norm = static_cast<const T*>(a.norm_H) + begin;
    for (int i = threadIdx.x; i < columns / 8; i += kThreads)
      reinterpret_cast<uint4*>(shared_norm)[i] = reinterpret_cast<const uint4*>(norm)[i];
  }
  for (int e = threadIdx.x; e < a.experts; e += kThreads)
    bias[e] = a.selection_bias_E == nullptr ? 0.0F : a.selection_bias_E[e];
  // Rows and columns that are not there are zero.
  for (int i = threadIdx.x; i < kRows * slices.pitch / 8; i += kThreads)
    reinterpret_cast<uint4*>(shared_x)[i] = make_uint4(0, 0, 0, 0);
  cluster.sync();  // all of its thread blocks run: their shared memory is there
  grid_dependency_wait();

  const auto keep = [&](int row, int four, uint2 sum) {
    *reinterpret_cast<uint2*>(shared_x + row * slices.pitch + 4 * four - begin) = sum;
    if (a.sum_TH != nullptr)
      static_cast<uint2*>(a.sum_TH)[static_cast<int64_t>(first_row + row) * (a.hidden / 4) + four] =
          sum;
  };
  const int first_four = begin / 4, last_four = (begin + columns) / 4;
  if constexpr (kAlone) {
    for (int row = 0; row < rows; ++row) {
      float sum = 0;
      for (int i = threadIdx.x; i < a.hidden / 4; i += kThreads) {
        uint2 four[1];
        add_up<1>(a, {first_row + row}, {i}, {true}, four);
        sum += squares_of(four[0]);
        if (i >= first_four && i < last_four) keep(row, i, four[0]);
      }
      sum = block_sum(sum, scratch);
      if (threadIdx.x < kRanks) squares[row][threadIdx.x] = threadIdx.x == 0 ? sum : 0.0F;
      __syncthreads();
    }
  } else {
    // A warp has every sixteenth row, and asks for two pieces of each before it needs one.
    constexpr int kEach = kRows / kWarps, kAhead = 2;
    float sum[kEach] = {};
    for (int first = first_four + lane; first < last_four; first += 32 * kAhead) {
      int row[kEach * kAhead], four[kEach * kAhead];
      bool is_there[kEach * kAhead];
      uint2 x[kEach * kAhead];
#pragma unroll
      for (int p = 0; p < kEach * kAhead; ++p) {
        row[p] = first_row + warp + kWarps * (p / kAhead);
        four[p] = first + 32 * (p % kAhead);
        is_there[p] = row[p] < first_row + rows && four[p] < last_four;
      }
      add_up(a, row, four, is_there, x);
#pragma unroll
      for (int p = 0; p < kEach * kAhead; ++p) {
        if (!is_there[p]) continue;
        sum[p / kAhead] += squares_of(x[p]);
        keep(row[p] - first_row, four[p], x[p]);
      }
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int row = warp + kWarps * r;
      if (!has_norm || row >= rows) continue;
      sum[r] = warp_sum(sum[r]);
      if (lane < kRanks)
        send(address_in(shared_address(&squares[row][rank]), lane), sum[r],
             address_in(shared_address(&squares_full), lane));
    }
    if (has_norm) wait(shared_address(&squares_full), 0);
    __syncthreads();
  }
  if (has_norm) {
    const int pieces = columns / 8;
    for (int i = threadIdx.x; i < rows * pieces; i += kThreads) {
      const int row = i / pieces, piece = i % pieces;
      float sum = 0;
#pragma unroll
      for (const float s : squares[row]) sum += s;
      const float scale = rsqrtf(sum / static_cast<float>(a.hidden) + a.eps);
      auto& x = reinterpret_cast<Pack<T>*>(shared_x + row * slices.pitch)[piece];
      const auto& norm = reinterpret_cast<const Pack<T>*>(shared_norm)[piece];
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j)
        out.x[j] = from_float<T>(to_float(x.x[j]) * scale * to_float(norm.x[j]));
      x = out;
      auto* normed =
          static_cast<T*>(a.normed_TH) + static_cast<int64_t>(first_row + row) * a.hidden;
      reinterpret_cast<Pack<T>*>(normed + begin)[piece] = out;
    }
    __syncthreads();
  }
  bool is_loaded = true;
  for (int tile = warp; tile < tiles; tile += kWarps) {
    float sum[kRows / kTileRows][2][4] = {};  // two independent chains of mma
    for (int first = 0; first < blocks; first += kHeld) {
      if (!is_loaded) load(tile, first);
      is_loaded = false;
#pragma unroll
      for (int h = 0; h < kHeld; ++h) {
        if (first + h >= blocks) continue;
        const T* x = shared_x + (first + h) * kBlockColumns + lane % 4 * kLaneColumns;
#pragma unroll
        for (int t = 0; t < kRows / kTileRows; ++t) {
          const T* from = x + (kTileRows * t + lane / 4) * slices.pitch;
          const uint4 low = *reinterpret_cast<const uint4*>(from);
          const uint4 high = *reinterpret_cast<const uint4*>(from + 8 * slices.pitch);
          multiply<T>(sum[t][0], low.x, high.x, low.y, high.y, held[h].x, held[h].y);
          multiply<T>(sum[t][1], low.z, high.z, low.w, high.w, held[h].z, held[h].w);
        }
      }
    }
    const int expert = tile * kTileExperts + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      if (row >= rows || expert + i % 2 >= a.experts) continue;
      const float* to =
          partials + (rank * kRowsOfRank + row % kRowsOfRank) * a.experts + expert + i % 2;
      send(address_in(shared_address(to), row / kRowsOfRank),
           sum[i / 4][0][i % 4] + sum[i / 4][1][i % 4],
           address_in(shared_address(&partials_full), row / kRowsOfRank));
    }
  }
  if (own_rows == 0) return;
  wait(shared_address(&partials_full), 0);
  // One row of this rank after the other, [row, expert]; those of the other ranks' columns follow.
  const int stride = kRowsOfRank * a.experts;
  for (int i = threadIdx.x; i < own_rows * a.experts; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) sum += partials[r * stride + i];
    partials[i] = a.is_sigmoid ? 1.0F / (1.0F + expf(-sum)) : sum;
  }
  __syncthreads();
  if (warp >= own_rows) return;
  const int row = first_row + rank * kRowsOfRank + warp;
  float* scores = partials + warp * a.experts;
  const int chosen = a.experts <= 64    ? choose<2>(a, scores, bias)
                     : a.experts <= 128 ? choose<4>(a, scores, bias)
                     : a.experts <= 256 ? choose<8>(a, scores, bias)
                                        : choose<kMostExperts / 32>(a, scores, bias);
  weigh(a, row, scores, chosen);
#endif
}

template <int kRows, bool kAlone>
void run(const RouteCall& call, cudaStream_t stream) {
  constexpr auto kKernel = norm_route_kernel<kRows, kAlone>;
  allow_shared_memory<kKernel>(Slices(kMostHidden, kMostExperts, kRows).bytes);
  const int clusters = (call.rows + kRows - 1) / kRows;
  launch(kKernel, dim3(clusters * kRanks), dim3(kThreads),
         Slices(call.hidden, call.experts, kRows).bytes, stream, call);
}

}  // namespace

bool has_norm_route(int64_t hidden, int64_t experts, int64_t per_token) {
  return compute_capability_major() == 9 && hidden % 8 == 0 && hidden <= kMostHidden &&
         experts <= kMostExperts && per_token <= std::min<int64_t>(kMostVisits, experts);
}

void norm_route(const RouteCall& call, cudaStream_t stream) {
  if (!has_norm_route(call.hidden, call.experts, call.per_token))
    throw std::runtime_error("no such kernel of a router");
  if (call.has_one_form) {
    run<2 * kTileRows, false>(call, stream);
  } else if (call.rows <= kMostAlone && call.norm_H != nullptr) {
    run<kTileRows, true>(call, stream);
  } else if (call.rows <= 8 * kTileRows) {
    run<kTileRows, false>(call, stream);
  } else {
    run<2 * kTileRows, false>(call, stream);
  }
}

}  // namespace slime::kernels::cuda
