#include <cooperative_groups.h>

#include <algorithm>

#include "core/divide_up.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sparse/sparse.h"

/// The exact choice of the best tokens of a row: radix selection, eight bits of the scores at a time, finds
/// the worst score that is chosen and how many tokens with it are; then those better and the first of those
/// equal are written in the order of the tokens. All of it is counting, so it repeats bit for bit.
///
/// A cluster of thread blocks has a row, each block a slice of its keys; where few rows run, one block
/// would take long over a long context. Histograms of a pass are read from each other's shared memory. Each
/// pass has histograms of its own, so one barrier of the cluster separates it from the next.
///
/// Most scores of a row share their first bits. So lanes with the number of the first lane, and then with
/// that of the first lane left, are counted together, and only the others one by one.

namespace slime::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kPageTokens = static_cast<int>(kernels::kPageTokens);
constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kBins = 256, kPasses = 4;
constexpr int kMostHeld = 24 * 1024;  // scores that a thread block keeps in shared memory

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// The sum over the lanes, in all of them.
__device__ inline int warp_total(int x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffU, x, offset);
  return x;
}

/// Counts `bin` of the lanes for which `counts` is true; by whole warps.
__device__ inline void count(int* histogram, int bin, bool counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned left = __ballot_sync(0xffffffffU, counts);
#pragma unroll
  for (int together = 0; together < 2; ++together) {
    if (left == 0) return;
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const int its = __shfl_sync(0xffffffffU, bin, leader);
    const bool is_equal = (left >> lane & 1U) != 0 && bin == its;
    const unsigned equal = __ballot_sync(0xffffffffU, is_equal);
    if (lane == leader) atomicAdd(histogram + bin, __popc(equal));
    left &= ~equal;
  }
  if ((left >> lane & 1U) != 0) atomicAdd(histogram + bin, 1);
}

#endif

template <int kRanks>
__global__ void SLIME_CLUSTER_OF(kRanks) __launch_bounds__(kThreads, 1)
    choose_tokens_kernel(const ChooseTokens a, int room) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ int histograms[kPasses][kBins];
  __shared__ int bin_totals[kBins / 32], better_totals[kBins / 32];
  __shared__ int found_bin, found_needed, found_before;  // of a pass
  __shared__ int warp_better[kWarps], warp_equal[kWarps];
  launch_dependents();
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t row = blockIdx.x / kRanks;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int chosen = static_cast<int>(a.most_chosen);
  const int keys = static_cast<int>(min(a.positions_T[row] + 1, a.most_keys));
  const int32_t* pages = a.pages + a.page_starts[row];
  int32_t* to = a.slot_TC + row * chosen;
  const auto slot_of = [&](int position) {
    return pages[position / kPageTokens] * kPageTokens + position % kPageTokens;
  };
  for (int i = thread; i < kPasses * kBins; i += kThreads) (&histograms[0][0])[i] = 0;
  grid_dependency_wait();
  if (keys <= chosen) {
    for (int i = rank * kThreads + thread; i < keys; i += kRanks * kThreads) to[i] = slot_of(i);
    return;
  }

  const int each = ((keys + kRanks - 1) / kRanks + 127) / 128 * 128;
  const int begin = min(rank * each, keys), size = min(each, keys - begin);
  const uint32_t* scores = a.score_TK + row * a.most_keys + begin;
  auto* held = reinterpret_cast<uint32_t*>(memory);
  const bool is_held = size <= room;
  if (is_held) {
    // Rows are multiples of four numbers long: the last four are there, if not all of them scores.
    for (int i = thread; i < (size + 3) / 4; i += kThreads)
      reinterpret_cast<uint4*>(held)[i] = __ldcg(reinterpret_cast<const uint4*>(scores) + i);
  }
  // Past the L1 cache, which may have seen what was here before the kernel that made the scores.
  const auto score_at = [&](int i) { return is_held ? held[i] : __ldcg(scores + i); };
  __syncthreads();

  // Of the scores whose first bits are `prefix`, `needed` are still to be chosen. Of slices before this
  // one, tokens that are better, and in the end those that are equal to the worst chosen one.
  uint32_t prefix = 0;
  int needed = chosen, better_before = 0, equal_before = 0;
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    const int shift = 24 - 8 * pass;
    int* own = histograms[pass];
    for (int first = 0; first < size; first += kThreads) {
      const int i = first + thread;
      const uint32_t score = i < size ? score_at(i) : 0;
      // Shifted twice: by 32 at once is not defined.
      count(own, static_cast<int>(score >> shift & 255U),
            i < size && (score >> shift >> 8) == prefix);
    }
    cluster.sync();
    // A thread has a bin, the largest first.
    const int bin = kBins - 1 - thread;
    int all = 0, of_before = 0;
    if (thread < kBins) {
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        const int one = r == rank ? own[bin] : *cluster.map_shared_rank(own + bin, r);
        all += one;
        if (r < rank) of_before += one;
      }
    }
    int sum = all;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int others = __shfl_up_sync(0xffffffffU, sum, offset);
      if (lane >= offset) sum += others;
    }
    if (thread < kBins && lane == 31) bin_totals[warp] = sum;
    __syncthreads();
    if (thread < kBins) {
      for (int w = 0; w < warp; ++w) sum += bin_totals[w];
      if (sum >= needed && sum - all < needed) {  // of one thread
        found_bin = bin;
        found_needed = needed - (sum - all);
        found_before = of_before;
      }
    }
    __syncthreads();
    const int better = warp_total(thread < kBins && bin > found_bin ? of_before : 0);
    if (thread < kBins && lane == 0) better_totals[warp] = better;
    prefix = prefix << 8 | static_cast<uint32_t>(found_bin);
    needed = found_needed;
    equal_before = found_before;
    __syncthreads();
    for (int w = 0; w < kBins / 32; ++w) better_before += better_totals[w];
  }

  // Each warp has a run of the slice: it counts, and then writes behind the warps before it.
  const uint32_t worst = prefix;
  const int warp_keys = ((size + kWarps - 1) / kWarps + 31) / 32 * 32;
  const int first = min(warp * warp_keys, size), last = min(first + warp_keys, size);
  int better = 0, equal = 0;
  for (int i = first; i < last; i += 32) {
    const bool is_there = i + lane < last;
    const uint32_t score = is_there ? score_at(i + lane) : 0;
    better += __popc(__ballot_sync(0xffffffffU, is_there && score > worst));
    equal += __popc(__ballot_sync(0xffffffffU, is_there && score == worst));
  }
  if (lane == 0) {
    warp_better[warp] = better;
    warp_equal[warp] = equal;
  }
  __syncthreads();
  better = better_before;
  equal = equal_before;
  for (int w = 0; w < warp; ++w) {
    better += warp_better[w];
    equal += warp_equal[w];
  }
  const unsigned lanes_before = (1U << lane) - 1;
  for (int i = first; i < last; i += 32) {
    const bool is_there = i + lane < last;
    const uint32_t score = is_there ? score_at(i + lane) : 0;
    const bool is_better = is_there && score > worst, is_equal = is_there && score == worst;
    const unsigned all_better = __ballot_sync(0xffffffffU, is_better),
                   all_equal = __ballot_sync(0xffffffffU, is_equal);
    const int better_here = better + __popc(all_better & lanes_before);
    const int equal_here = equal + __popc(all_equal & lanes_before);
    if (is_better || (is_equal && equal_here < needed))
      to[better_here + min(equal_here, needed)] = slot_of(begin + i + lane);
    better += __popc(all_better);
    equal += __popc(all_equal);
  }
  if constexpr (kRanks > 1) cluster.sync();  // others may still read the last histogram
#endif
}

template <int kRanks>
void run(const ChooseTokens& call, cudaStream_t stream) {
  constexpr auto kKernel = choose_tokens_kernel<kRanks>;
  constexpr int kScoreBytes = static_cast<int>(sizeof(uint32_t));
  allow_shared_memory<kKernel>(kMostHeld * kScoreBytes);
  const auto slice = round_up(divide_up(call.most_keys, int64_t{kRanks}), int64_t{128});
  const auto room = static_cast<int>(std::min<int64_t>(slice, kMostHeld));
  launch(kKernel, dim3(static_cast<unsigned>(call.num_rows * kRanks)), dim3(kThreads),
         room * kScoreBytes, stream, call, room);
}

/// Keys that one thread block goes through as fast as several that wait for each other.
constexpr int64_t kFewKeys = 8192;

}  // namespace

void choose_tokens(const ChooseTokens& call, cudaStream_t stream) {
  const auto fits = [&](int ranks) { return call.num_rows * ranks <= num_processors(); };
  if (call.most_keys <= kFewKeys || !fits(2)) return run<1>(call, stream);
  if (fits(8)) return run<8>(call, stream);
  fits(4) ? run<4>(call, stream) : run<2>(call, stream);
}

}  // namespace slime::kernels::cuda
