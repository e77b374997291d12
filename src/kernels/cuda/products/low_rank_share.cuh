#pragma once

/// The way down of adapters inside a product of few rows, whose thread blocks have all of x in shared memory: each makes
/// some ranks of h, and waits for the others' before its epilogue.
///
/// A kernel of its own would be two more waits between kernels, longer than the product itself at one row.

#include "kernels/cuda/products/low_rank_addition.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Thread blocks that make some of h: a first wave, all of which run at once.
__device__ inline int makers(int processors) {
  return min(static_cast<int>(gridDim.x), processors);
}

/// A rank of all pairs of an adapter: a line of A, and where h has it.
struct RankOfPairs {
  const float* line = nullptr;
  int column = 0;
  float scale = 0;

  __device__ RankOfPairs(const LowRankFactors& factors, int rank) {
    int which = 0;
    while (rank >= factors.of[which].rank) rank -= factors.of[which++].rank;
    const LowRankFactor& factor = factors.of[which];
    line = factor.values + rank * factor.pitch;
    column = factor.column + rank;
    scale = factor.scale;
  }
};

inline constexpr int kHeldFours = 8;

/// The first-level cache is for the factors that are added.
__device__ inline float4 load_four_once(const float* from) {
  const uint4 bits = load_once(from);
  return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                     __uint_as_float(bits.w));
}

/// A thread's first numbers of the line of A of the first rank that this thread block multiplies, four at once: loaded before
/// x is there. Not where rows choose: the slots are the step's.
struct HeldLine {
  float4 four[kHeldFours];
  bool is_there = false;

  __device__ void load(const LowRankAddition& call, int inputs, int makers, int thread,
                       int threads) {
    const int rank = blockIdx.x;
    is_there = call.by_row.tiles == 0 && rank < min(makers, call.down.ranks);
    if (!is_there) return;
    const RankOfPairs of(call.down, rank);
#pragma unroll
    for (int held = 0; held < kHeldFours; ++held) {
      const int i = held * threads + thread;
      if (i < inputs / 4) four[held] = load_four_once(of.line + 4 * i);
    }
  }
};

/// Asks for the lines of A that this thread block multiplies and does not hold.
__device__ inline void prefetch_share(const LowRankAddition& call, int inputs, int makers,
                                      int thread, int threads) {
  if (call.by_row.tiles > 0) return;
  constexpr int kLine = 32;  // floats
  for (int rank = blockIdx.x; rank < call.down.ranks; rank += makers) {
    const RankOfPairs of(call.down, rank);
    const int begin = rank == static_cast<int>(blockIdx.x) ? 4 * kHeldFours * threads / kLine : 0;
    for (int i = begin + thread; i < inputs / kLine; i += threads)
      prefetch_to_l2(of.line + i * kLine);
  }
}

/// `four_of(row, i)`: inputs 4 i to 4 i + 3, as numbers of 16 bits. `parts`: shared memory of a number for each warp. By
/// `threads`, of which this is number `thread`, and which sync() synchronises.
template <typename FourOf, typename Sync>
__device__ inline void make_share(const LowRankAddition& call, int rows, int inputs,
                                  const int* slot_T, int makers, int thread, int threads,
                                  const HeldLine& held, float* parts, const FourOf& four_of,
                                  const Sync& sync) {
  if (static_cast<int>(blockIdx.x) >= makers) return;
  for (int row = 0; row < rows; ++row) {
    const bool chooses = call.by_row.tiles > 0;
    if (chooses && slot_T[row] < 0) continue;
    const LowRankFactors& factors = chooses ? call.down_table[slot_T[row]] : call.down;
    for (int rank = blockIdx.x; rank < factors.ranks; rank += makers) {
      const RankOfPairs of(factors, rank);
      float sum = 0;
      const auto add = [&](const float4& line, int i) {
        const FourRanks a = packed(line);
        const uint2 x = four_of(row, i);
        const float2 a_low = unpack<BFloat16>(a.low), a_high = unpack<BFloat16>(a.high);
        const float2 x_low = unpack<BFloat16>(x.x), x_high = unpack<BFloat16>(x.y);
        sum += a_low.x * x_low.x + a_low.y * x_low.y + a_high.x * x_high.x + a_high.y * x_high.y;
      };
      int begin = thread;
      if (held.is_there && rank == static_cast<int>(blockIdx.x)) {
#pragma unroll
        for (int i = 0; i < kHeldFours; ++i)
          if (i * threads + thread < inputs / 4) add(held.four[i], i * threads + thread);
        begin += kHeldFours * threads;
      }
#pragma unroll 4
      for (int i = begin; i < inputs / 4; i += threads) add(load_four_once(of.line + 4 * i), i);
      sum = warp_sum(sum);
      if (thread % 32 == 0) parts[thread / 32] = sum;
      sync();
      if (thread == 0) {
        float total = 0;
        for (int warp = 0; warp < threads / 32; ++warp) total += parts[warp];
        float* const to = call.h_TR + static_cast<int64_t>(row) * call.h_pitch + of.column;
        call.is_polled ? store_made(to, of.scale * total) : void(*to = of.scale * total);
      }
      sync();
    }
  }
  // Behind this thread's own stores, which are all there are.
  if (thread == 0 && !call.is_polled)
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(call.made) : "memory");
}

/// Waits until all thread blocks have made theirs. By one thread, before the others may read h.
__device__ inline void wait_for_shares(const LowRankAddition& call, int makers) {
  unsigned made = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(made) : "l"(call.made) : "memory");
  } while (made < static_cast<unsigned>(makers));
}

/// h of all rows into shared memory, rows of h_pitch floats, as its numbers come. By `threads`, of which this is number
/// `thread`.
__device__ inline void stage_polled(const LowRankAddition& call, int rows, const int* slot_T,
                                    int thread, int threads, float* staged) {
  const bool chooses = call.by_row.tiles > 0;
  for (int row = 0; row < rows; ++row) {
    if (chooses && slot_T[row] < 0) continue;
    const LowRankFactors& factors = chooses ? call.down_table[slot_T[row]] : call.down;
    for (int rank = thread; rank < factors.ranks; rank += threads) {
      const int at = row * call.h_pitch + RankOfPairs(factors, rank).column;
      staged[at] = load_made(call.h_TR + at);
    }
  }
}

/// By one thread, when its thread block has waited: the last one sets the numbers back.
__device__ inline void forget_shares(const LowRankAddition& call) {
  const unsigned waited = atomicAdd(call.made + 1, 1U);
  if (waited + 1 < gridDim.x) return;
  call.made[0] = 0;  // nobody looks any more
  call.made[1] = 0;
}

/// The same of numbers that are waited for themselves, by a warp.
__device__ inline void forget_polled(const LowRankAddition& call, int rows) {
  const int lane = threadIdx.x % 32;
  unsigned waited = 0;
  if (lane == 0) {
    __threadfence();  // behind the reads of this thread block
    waited = atomicAdd(call.made + 1, 1U);
  }
  if (shuffle(waited, 0) + 1 < gridDim.x) return;
  for (int n = lane; n < rows * call.h_pitch; n += 32) call.h_TR[n] = __uint_as_float(kNotMade);
  if (lane == 0) call.made[1] = 0;
}

#endif

}  // namespace slime::kernels::cuda
