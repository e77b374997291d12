#include "kernels/cuda/experts/norm_route.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

/// A cluster of thread blocks has kRows rows; each block has a slice of their columns, which it adds
/// up, norms and multiplies with the slice of all experts (m16n8k16, rows are M). The partial sums
/// of kRowsOfRank rows then go to one thread block each, which chooses for those.
constexpr int kRanks = 8, kWarps = 16, kThreads = 32 * kWarps;
constexpr int kTileRows = 16;
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

/// By one warp, of which a lane has the experts lane, lane + 32 and so on. partials: of the first
/// rank; those of the next one are `stride` numbers further.
template <int kEach>
__device__ void choose(const RouteCall& a, int row, const float* partials, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float score[kEach];  // at first the product with the router's row
  float most = -INFINITY, sum = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = lane + 32 * j;
    score[j] = 0;
    if (e >= a.experts) continue;
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) score[j] += partials[rank * stride + e];
    most = fmaxf(most, score[j]);
  }
  for (int offset = 16; offset > 0; offset /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, offset));
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = lane + 32 * j;
    if (e >= a.experts) continue;
    score[j] = a.is_sigmoid ? 1.0F / (1.0F + expf(-score[j])) : expf(score[j] - most);
    sum += score[j];
  }
  if (!a.is_sigmoid) {
    sum = warp_sum(sum);
#pragma unroll
    for (float& s : score) s /= sum;
  }
  uint32_t key[kEach];  // zero: chosen already, or no expert
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int e = lane + 32 * j;
    key[j] = 0;
    if (e >= a.experts) continue;
    const float bias = a.selection_bias_E == nullptr ? 0.0F : a.selection_bias_E[e];
    key[j] = ordered(score[j] + bias);
  }
  int chosen = 0;
  float weight = 0, total = 0;  // of visit `lane`, and of all
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
    float its_score = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (first != static_cast<unsigned>(lane + 32 * j)) continue;
      its_score = score[j];
      key[j] = 0;
    }
    its_score = __shfl_sync(0xffffffffU, its_score, first % 32);
    total += its_score;
    if (lane == k) chosen = static_cast<int>(first), weight = its_score;
  }
  if (lane >= a.per_token) return;
  if (a.normalizes) weight /= total + 1e-20F;
  const int64_t at = static_cast<int64_t>(row) * a.per_token + lane;
  a.expert_TK[at] = chosen;
  a.weight_TK[at] = weight * a.scaling;
}

/// Four columns of a row of the residual stream after the addition, rounded.
__device__ uint2 added_up(const RouteCall& a, int row, int four) {
  using T = __nv_bfloat16;
  const int fours = a.hidden / 4;
  const int64_t at = static_cast<int64_t>(row) * fours + four;
  const int64_t stride = static_cast<int64_t>(a.rows) * fours;
  // Past the L1 cache, which may hold what another kernel read here before it was complete.
  const uint2 held = __ldcg(static_cast<const uint2*>(a.x_TH) + at);
  if (a.norm_H == nullptr) return held;
  float4 added = make_float4(0, 0, 0, 0);
  const auto add_four = [&](uint2 x) {
    const float2 low = unpack<T>(x.x), high = unpack<T>(x.y);
    added.x += low.x, added.y += low.y, added.z += high.x, added.w += high.y;
  };
  if (a.bias_H != nullptr) add_four(static_cast<const uint2*>(a.bias_H)[four]);
  if (a.update_TH != nullptr) add_four(__ldcg(static_cast<const uint2*>(a.update_TH) + at));
  if (a.partials_STH != nullptr) {
    const auto* partials = reinterpret_cast<const float4*>(a.partials_STH) + at;
#pragma unroll 8
    for (int s = 0; s < a.splits; ++s) {
      const float4 partial = __ldcg(partials + s * stride);
      added.x += partial.x, added.y += partial.y, added.z += partial.z, added.w += partial.w;
    }
  }
  const float2 low = unpack<T>(held.x), high = unpack<T>(held.y);
  return make_uint2(pack<T>(low.x + added.x, low.y + added.y),
                    pack<T>(high.x + added.z, high.y + added.w));
}

__device__ float squares_of(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
}

template <int kRows>
__global__ void __cluster_dims__(kRanks, 1, 1) __launch_bounds__(kThreads, 1)
    norm_route_kernel(const RouteCall a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = __nv_bfloat16;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float squares[kRows][kRanks], scratch[33];
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
  const bool has_norm = a.norm_H != nullptr;
  if (has_norm) {
    const auto* norm = static_cast<const T*>(a.norm_H) + begin;
    for (int i = threadIdx.x; i < columns / 8; i += kThreads)
      reinterpret_cast<uint4*>(shared_norm)[i] = reinterpret_cast<const uint4*>(norm)[i];
  }
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
  if (a.rows <= kMostAlone && has_norm) {
    for (int row = 0; row < rows; ++row) {
      float sum = 0;
      for (int i = threadIdx.x; i < a.hidden / 4; i += kThreads) {
        const uint2 four = added_up(a, first_row + row, i);
        sum += squares_of(four);
        if (i >= first_four && i < last_four) keep(row, i, four);
      }
      sum = block_sum(sum, scratch);
      if (threadIdx.x < kRanks) squares[row][threadIdx.x] = threadIdx.x == 0 ? sum : 0.0F;
      __syncthreads();
    }
  } else {
    for (int row = warp; row < rows; row += kWarps) {
      float sum = 0;
      for (int i = first_four + lane; i < last_four; i += 32) {
        const uint2 four = added_up(a, first_row + row, i);
        sum += squares_of(four);
        keep(row, i, four);
      }
      if (!has_norm) continue;
      sum = warp_sum(sum);
      if (lane < kRanks) *cluster.map_shared_rank(&squares[row][rank], lane) = sum;
    }
    if (has_norm) {
      cluster.sync();
    } else {
      __syncthreads();
    }
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
    float sum[kRows / kTileRows][4] = {};
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
          multiply<T>(sum[t], low.x, high.x, low.y, high.y, held[h].x, held[h].y);
          multiply<T>(sum[t], low.z, high.z, low.w, high.w, held[h].z, held[h].w);
        }
      }
    }
    const int expert = tile * kTileExperts + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      if (row >= rows || expert + i % 2 >= a.experts) continue;
      float* to = partials + (rank * kRowsOfRank + row % kRowsOfRank) * a.experts + expert + i % 2;
      *cluster.map_shared_rank(to, row / kRowsOfRank) = sum[i / 4][i % 4];
    }
  }
  cluster.sync();
  const int row = rank * kRowsOfRank + warp;
  if (warp >= kRowsOfRank || row >= rows) return;
  const float* own = partials + warp * a.experts;
  const int stride = kRowsOfRank * a.experts;
  if (a.experts <= 64) {
    choose<2>(a, first_row + row, own, stride);
  } else if (a.experts <= 128) {
    choose<4>(a, first_row + row, own, stride);
  } else if (a.experts <= 256) {
    choose<8>(a, first_row + row, own, stride);
  } else {
    choose<kMostExperts / 32>(a, first_row + row, own, stride);
  }
#endif
}

template <int kRows>
void run(const RouteCall& call, cudaStream_t stream) {
  constexpr auto kKernel = norm_route_kernel<kRows>;
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
  call.rows <= 8 * kTileRows ? run<kTileRows>(call, stream) : run<2 * kTileRows>(call, stream);
}

}  // namespace slime::kernels::cuda
