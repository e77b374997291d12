#pragma once

/// The way down of adapters inside a product of a batch: warps of its thread blocks that do nothing else make h = scale * x
/// A^T while the others stream weights, and have it in shared memory before the epilogue.
///
/// A kernel of its own between the one that writes x and the product costs more than the numbers: the product's thread
/// blocks start behind it, and wait for its end in their epilogues.
///
/// h is made in units of 8 ranks, 16 rows and one of the ranges of inputs (kHiddenShares), which thread blocks have by
/// their index. A unit's sums go to memory as they are, with a flag behind them; who needs h adds its ranges up, in
/// the order of kernels/cuda/products/low_rank_hidden.h.
///
/// Nobody waits for ever. A thread block that has looked for a flag many times makes all units itself: that happens where
/// one that has some cannot begin, say because kernels of another stream wait likewise on the other multiprocessors. All
/// make the same bits.

#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/products/batch_product_epilogue.cuh"
#include "kernels/cuda/products/batch_product_hidden.h"
#include "kernels/cuda/products/low_rank_addition.cuh"
#include "kernels/cuda/products/low_rank_prefetch.cuh"

namespace slime::kernels::cuda::batch {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Named barrier 3: the warps that make h.
__device__ inline void sync_share() {
  asm volatile("bar.sync 3, %0;" ::"r"(kShareThreads) : "memory");
}
/// Whether all of `threads`, which share named barrier 3, say so, in each of them.
__device__ inline bool all_of(int threads, bool is_true) {
  int all;
  asm volatile(
      "{\n"
      ".reg .pred one, every;\n"
      "setp.ne.s32 one, %1, 0;\n"
      "bar.red.and.pred every, 3, %2, one;\n"
      "selp.s32 %0, 1, 0, every;\n"
      "}\n"
      : "=r"(all)
      : "r"(static_cast<int>(is_true)), "r"(threads)
      : "memory");
  return all != 0;
}
/// Named barrier 4: consumers, of which there are `threads`, wait for h in shared memory.
__device__ inline void arrive_with_hidden(int threads) {
  asm volatile("bar.arrive 4, %0;" ::"r"(threads + kShareThreads) : "memory");
}
__device__ inline void wait_for_hidden(int threads) {
  asm volatile("bar.sync 4, %0;" ::"r"(threads + kShareThreads) : "memory");
}

/// A unit of h, and what a lane reads of it: a line of A and two rows of x.
struct HiddenUnit {
  const float* line = nullptr;  // null: the factor has no such rank
  int rows[2] = {-1, -1};       // -1: there is none
  int first_row = 0, chunk = 0, share = 0;
  int begin = 0, end = 0;  // steps of 16 inputs

  __device__ HiddenUnit(const Arguments& a, int index) {
    const int tiles = hidden_row_tiles(a.rows), lane = threadIdx.x % 32;
    share = index % kHiddenShares;
    first_row = index / kHiddenShares % tiles * kUnitRows;
    chunk = index / (kHiddenShares * tiles);
    int which = 0, of_factor = chunk;
    while (of_factor >= hidden_chunks(a.addition.down.of[which]))
      of_factor -= hidden_chunks(a.addition.down.of[which++]);
    const LowRankFactor& factor = a.addition.down.of[which];
    set_line(factor, of_factor);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (row < a.rows) rows[half] = row;
    }
    set_steps(a);
  }
  /// A chunk of which the lane has this line of A, or null, and these two rows.
  __device__ HiddenUnit(const Arguments& a, const float* of_lane, int of_all, int of_inputs,
                        int upper, int lower)
      : line(of_lane), rows{upper, lower}, chunk(of_all), share(of_inputs) {
    set_steps(a);
  }

  __device__ void set_line(const LowRankFactor& factor, int of_factor) {
    const int lane = threadIdx.x % 32, rank = of_factor * kUnitRanks + lane / 4;
    if (rank < factor.rank) line = factor.values + rank * factor.pitch + 4 * (lane % 4);
  }
  __device__ void set_steps(const Arguments& a) {
    const int steps = a.inputs / kHiddenStep;
    begin = steps * share / kHiddenShares;
    end = steps * (share + 1) / kHiddenShares;
  }

  /// Step `i` of chain `chain`.
  __device__ int step(int chain, int i) const { return begin + chain + kHiddenChains * i; }
  __device__ float4 ranks(int step) const {
    return load_read_only_if(line != nullptr && step < end, line + kHiddenStep * step);
  }
  __device__ void prefetch(int thread) const {
    constexpr int kLineSteps = 32 / kHiddenStep;
    if (line == nullptr || thread % 4 > 0) return;
    for (int step = begin + thread / 32 * kLineSteps; step < end; step += kShareWarps * kLineSteps)
      prefetch_to_l2(line + kHiddenStep * step);
  }
  __device__ uint2 inputs(const Arguments& a, int step, int half) const {
    const int64_t first = static_cast<int64_t>(rows[half]) * a.inputs + kHiddenStep * step;
    return load_past_l1_if(rows[half] >= 0 && step < end,
                           static_cast<const uint2*>(a.x_TI) + first / 4 + threadIdx.x % 4);
  }
};

inline constexpr int kChainsOfWarp = kHiddenChains / kShareWarps;

/// Chain `c` of those of a warp.
__device__ inline int chain_of(int thread, int c) { return thread / 32 + kShareWarps * c; }

/// A lane's first numbers of A, loaded before x is there.
struct HeldRanks {
  static constexpr int kSteps = 3;

  FourRanks of[kChainsOfWarp][kSteps];

  __device__ void load(const HiddenUnit& unit, int thread) {
    load(unit, thread, [] {});
  }
  /// meanwhile(): while the numbers are on their way.
  template <typename Meanwhile>
  __device__ void load(const HiddenUnit& unit, int thread, const Meanwhile& meanwhile) {
    float4 loaded[kChainsOfWarp][kSteps];
#pragma unroll
    for (int c = 0; c < kChainsOfWarp; ++c)
#pragma unroll
      for (int i = 0; i < kSteps; ++i) loaded[c][i] = unit.ranks(unit.step(chain_of(thread, c), i));
    meanwhile();
#pragma unroll
    for (int c = 0; c < kChainsOfWarp; ++c)
#pragma unroll
      for (int i = 0; i < kSteps; ++i) of[c][i] = packed(loaded[c][i]);
  }
};

/// Steps [first, first + kSteps) of a warp's chains, all loads of which are in flight at once. `held`: their numbers of A,
/// or null.
template <int kSteps>
__device__ inline void multiply_steps(const Arguments& a, const HiddenUnit& unit, int thread,
                                      int first, const HeldRanks* held,
                                      float (&sum)[kChainsOfWarp][4]) {
  float4 loaded[kChainsOfWarp][kSteps];
  uint2 x[kChainsOfWarp][kSteps][2];
#pragma unroll
  for (int c = 0; c < kChainsOfWarp; ++c) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int step = unit.step(chain_of(thread, c), first + i);
      if (held == nullptr) loaded[c][i] = unit.ranks(step);
#pragma unroll
      for (int half = 0; half < 2; ++half) x[c][i][half] = unit.inputs(a, step, half);
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int c = 0; c < kChainsOfWarp; ++c) {
      const FourRanks b =
          held == nullptr ? packed(loaded[c][i]) : held->of[c][i % HeldRanks::kSteps];
      multiply<BFloat16>(sum[c], x[c][i][0].x, x[c][i][1].x, x[c][i][0].y, x[c][i][1].y, b.low,
                         b.high);
    }
  }
}

/// Sums of a unit's chains in shared memory: [chain, row, rank].
inline constexpr int kChainPitch = kUnitRanks + 1;
static_assert(4 * kHiddenChains * kUnitRows * kChainPitch <= hidden_bytes(1, 1));

/// A thread's number of a unit when x is there: row thread / kUnitRanks, rank thread % kUnitRanks. By kShareThreads, which
/// sync() synchronises. `held`: of this unit, or null.
template <typename Sync>
__device__ inline float sum_of_unit(const Arguments& a, const HiddenUnit& unit, int thread,
                                    const HeldRanks* held, float* of_chains, const Sync& sync) {
  float sum[kChainsOfWarp][4] = {};
  int first = 0;
  if (held != nullptr) {
    multiply_steps<HeldRanks::kSteps>(a, unit, thread, 0, held, sum);
    first = HeldRanks::kSteps;
  }
  constexpr int kAtOnce = 2;
#pragma unroll 1
  for (; unit.step(0, first) < unit.end; first += kAtOnce)
    multiply_steps<kAtOnce>(a, unit, thread, first, nullptr, sum);
  const int lane = thread % 32;
#pragma unroll
  for (int c = 0; c < kChainsOfWarp; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      of_chains[(chain_of(thread, c) * kUnitRows + lane / 4 + i / 2 * 8) * kChainPitch +
                2 * (lane % 4) + i % 2] = sum[c][i];
  }
  sync();
  static_assert(kShareThreads == kUnitRows * kUnitRanks);
  const int row = thread / kUnitRanks, rank = thread % kUnitRanks;
  float total = 0;
#pragma unroll
  for (int chain = 0; chain < kHiddenChains; ++chain)
    total += of_chains[(chain * kUnitRows + row) * kChainPitch + rank];
  return total;
}

/// Behind the stores of all threads that made it, by one of them.
__device__ inline void set_flag(const Arguments& a, int index) {
  asm volatile(
      "st.release.gpu.global.u32 [%0], 1;" ::"l"(a.addition.flags + kFirstHiddenFlag + index)
      : "memory");
}

/// Makes unit `index` when x is there. `held`: of this unit, or null.
__device__ inline void make_unit(const Arguments& a, int index, int thread, const HeldRanks* held,
                                 float* of_chains) {
  const HiddenUnit unit(a, index);
  const float total = sum_of_unit(a, unit, thread, held, of_chains, sync_share);
  const int row = thread / kUnitRanks, rank = thread % kUnitRanks;
  if (unit.first_row + row < a.rows) {
    const int line = (unit.chunk * kHiddenShares + unit.share) * a.rows + unit.first_row + row;
    a.addition.h_TR[line * kUnitRanks + rank] = total;
  }
  sync_share();  // all have stored, and nobody reads the chains any more
  if (thread == 0) set_flag(a, index);
}

/// True when the unit has been made; false after many looks.
__device__ inline bool wait_for_unit(const Arguments& a, int index) {
  constexpr int kLooks = 1 << 10;  // most of a millisecond
  unsigned is_made = 0;
  for (int look = 0; look < kLooks && is_made == 0; ++look)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(is_made)
                 : "l"(a.addition.flags + kFirstHiddenFlag + index)
                 : "memory");
  return is_made != 0;
}

/// Whether this thread block has outputs of the factor.
__device__ inline bool has_outputs_of(const Arguments& a, const LowRankFactor& factor) {
  const int begin = blockIdx.x * a.tiling.box, end = min(begin + a.tiling.box, a.units);
  const auto meets = [&](int from, int to) { return factor.begin < to && factor.end > from; };
  return meets(begin, end) || (a.tiling.is_pairs && meets(a.units + begin, a.units + end));
}

/// h of the factors that this thread block adds, from the units into shared memory.
__device__ inline void stage_units(const Arguments& a, int thread, float* staged) {
  constexpr int kFours = kUnitRanks / 4;
  const int pitch = staged_pitch(a.addition);
  int chunk = 0;
  for (int which = 0; which < a.addition.down.count; ++which) {
    const LowRankFactor& factor = a.addition.down.of[which];
    const int first = chunk, fours = hidden_chunks(factor) * kFours;
    chunk += hidden_chunks(factor);
    if (!has_outputs_of(a, a.addition.factors.of[which])) continue;
    for (int n = thread; n < a.rows * fours; n += kShareThreads) {
      const int row = n / fours, four = n % fours;
      const int line = (first + four / kFours) * kHiddenShares * a.rows + row;
      const auto* from =
          reinterpret_cast<const float4*>(a.addition.h_TR) + line * kFours + four % kFours;
      float4 total = make_float4(0, 0, 0, 0);
      add_partials<kHiddenShares>(total, from, a.rows * kFours, kHiddenShares);
      const float of_rank[4] = {total.x, total.y, total.z, total.w};
      float* const to = staged + row * pitch + factor.column + 4 * four;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (4 * four + i < factor.rank) to[i] = factor.scale * of_rank[i];
    }
  }
}

/// By one warp of each thread block, which neither looks at flags nor sets any from then on: the last one takes them back.
__device__ inline void forget_units(const Arguments& a, int units) {
  unsigned have_done = 0;
  if (threadIdx.x % 32 == 0) {
    __threadfence();
    have_done = atomicAdd(a.addition.flags, 1U);
    __threadfence();
  }
  if (shuffle(have_done, 0) + 1 < gridDim.x * gridDim.y) return;
  for (int i = threadIdx.x % 32; i < kFirstHiddenFlag + units; i += 32) a.addition.flags[i] = 0;
}

/// All that the warps of a thread block do that make h. `thread`: of kShareThreads; `threads`: consumers; `staged`: shared
/// memory of hidden_bytes(). Kernels before have completed when it reads x, so that no product of theirs uses flags or
/// units.
__device__ inline void make_hidden(const Arguments& a, int thread, int threads, bool needs_all,
                                   float* staged) {
  const int units = hidden_units(a.addition.down, a.rows), blocks = gridDim.x * gridDim.y;
  const int mine = blockIdx.y * gridDim.x + blockIdx.x;
  HeldRanks held;
  if (mine < units) {
    const HiddenUnit unit(a, mine);
    held.load(unit, thread);
    // The others wait in the second-level cache.
    for (int index = mine; index < units; index += blocks) HiddenUnit(a, index).prefetch(thread);
  }
  const auto output = [&](int local) { return output_of(a.tiling, a.units, local); };
  if (needs_all)
    prefetch_addition(a.addition, a.tiling.block_outputs(), thread, kShareThreads, output);
  grid_dependency_wait();
  if (mine < units) make_unit(a, mine, thread, &held, staged);
  for (int index = mine + blocks; index < units; index += blocks)
    make_unit(a, index, thread, nullptr, staged);
  if (needs_all) {
    touch_addition(a.addition, a.tiling.block_outputs(), thread, kShareThreads, output);
    bool are_made = true;
    for (int index = thread; index < units; index += kShareThreads)
      are_made = wait_for_unit(a, index) && are_made;
    if (!all_of(kShareThreads, are_made))
      for (int index = 0; index < units; ++index) make_unit(a, index, thread, nullptr, staged);
    stage_units(a, thread, staged);
    arrive_with_hidden(threads);
  }
  if (thread < 32) forget_units(a, units);
}

#endif

}  // namespace slime::kernels::cuda::batch
