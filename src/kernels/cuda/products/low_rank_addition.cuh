#pragma once

/// The addition of adapters to a product's accumulators (LowRankAddition), by the warps that hold them.
///
/// Accumulators are fragments of 16 by 8 numbers (kernels/cuda/tensor_core.cuh). A lane reads four ranks at once; which
/// of them the instruction calls which k does not matter. Compute capability 9.0.

#include <cuda.h>

#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {

inline constexpr int kRanksOfStep = 16;  // K of the instruction

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A lane's ranks of a step: four numbers of one line, 16 bits each.
struct FourRanks {
  uint32_t low = 0, high = 0;
};

__device__ inline FourRanks packed(const float4& x) {
  return {pack<BFloat16>(x.x, x.y), pack<BFloat16>(x.z, x.w)};
}

/// What packed() rounds away.
__device__ inline float4 rest_of(const float4& x) {
  const auto rest = [](float y) { return y - rounded<BFloat16>(y); };
  return make_float4(rest(x.x), rest(x.y), rest(x.z), rest(x.w));
}

/// Numbers [0, count) of four, 0 behind them. `is_whole`: 16 aligned bytes can be read.
template <typename Load>
__device__ inline float4 load_four(const float* from, int count, bool is_whole, const Load& load) {
  if (is_whole && count >= 4) return load(reinterpret_cast<const float4*>(from));
  return make_float4(count > 0 ? load(from) : 0.0F, count > 1 ? load(from + 1) : 0.0F,
                     count > 2 ? load(from + 2) : 0.0F, count > 3 ? load(from + 3) : 0.0F);
}

__device__ inline bool has_whole_fours(const float* from, int64_t pitch) {
  return (reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(pitch) * sizeof(float)) % 16 ==
         0;
}

/// Loads where `wanted`, else 0, without a branch: a conversion behind a branch would wait for its number before the next
/// load is asked for.
__device__ inline float4 load_read_only_if(bool wanted, const float* from) {
  float4 x = make_float4(0, 0, 0, 0);
  asm("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4]; }"
      : "+f"(x.x), "+f"(x.y), "+f"(x.z), "+f"(x.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted)));
  return x;
}
__device__ inline float4 load_past_l1_if(bool wanted, const float* from) {
  float4 x = make_float4(0, 0, 0, 0);
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4]; }"
      : "+f"(x.x), "+f"(x.y), "+f"(x.z), "+f"(x.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted))
      : "memory");
  return x;
}
__device__ inline uint2 load_past_l1_if(bool wanted, const uint2* from) {
  uint2 x = make_uint2(0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.cg.v2.u32 {%0, %1}, [%2]; }"
               : "+r"(x.x), "+r"(x.y)
               : "l"(from), "r"(static_cast<uint32_t>(wanted))
               : "memory");
  return x;
}

/// Whether all of a factor's ranks are read as fours.
__device__ inline bool has_only_fours(const LowRankFactor& factor) {
  return factor.rank % 4 == 0 && has_whole_fours(factor.values, factor.pitch);
}

/// The factor's numbers of an output, 0 outside of its range; `rank`: the lane's first.
__device__ inline FourRanks ranks_of_output(const LowRankFactor& factor, int output, int rank) {
  if (output < factor.begin || output >= factor.end) return {};
  const float* line = factor.values + (output - factor.begin) * factor.pitch;
  return packed(load_four(line + rank, factor.rank - rank,
                          has_whole_fours(factor.values, factor.pitch),
                          [](const auto* from) { return load_read_only(from); }));
}

/// The same of output_of(i) from rank_of(i) on for i < kCount. The loads of kAtOnce of them are in flight at once.
template <int kAtOnce, int kCount, typename OutputOf, typename RankOf>
__device__ inline void load_outputs(const LowRankFactor& factor, const OutputOf& output_of,
                                    const RankOf& rank_of, FourRanks (&b)[kCount]) {
  if (!has_only_fours(factor)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) b[i] = ranks_of_output(factor, output_of(i), rank_of(i));
    return;
  }
#pragma unroll
  for (int begin = 0; begin < kCount; begin += kAtOnce) {
    float4 four[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= kCount) continue;
      const int output = output_of(begin + i), rank = rank_of(begin + i);
      const bool is_there = output >= factor.begin && output < factor.end && rank < factor.rank;
      four[i] = load_read_only_if(is_there,
                                  factor.values + (output - factor.begin) * factor.pitch + rank);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i < kCount) b[begin + i] = packed(four[i]);
  }
}

/// A number of h for thread blocks that wait for it, and such numbers when they are there.
__device__ inline void store_made(float* to, float x) {
  const uint32_t bits = __float_as_uint(x) == kNotMade ? 0x7fffffffU : __float_as_uint(x);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}
__device__ inline float load_made(const float* from) {
  uint32_t bits = kNotMade;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(bits) : "l"(from) : "memory");
  } while (bits == kNotMade);
  return __uint_as_float(bits);
}
__device__ inline float4 load_made(const float4* from) {
  uint4 bits;
  do {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from)
                 : "memory");
  } while (bits.x == kNotMade || bits.y == kNotMade || bits.z == kNotMade || bits.w == kNotMade);
  return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                     __uint_as_float(bits.w));
}

/// A row's h when it is there, 0 where `is_there` is false.
__device__ inline float4 polled_ranks_of_row(const LowRankAddition& call,
                                             const LowRankFactor& factor, int row, bool is_there,
                                             int rank) {
  if (!is_there) return make_float4(0, 0, 0, 0);
  const float* line = call.h_TR + static_cast<int64_t>(row) * call.h_pitch + factor.column;
  return load_four(line + rank, factor.rank - rank, has_whole_fours(line, 0),
                   [](const auto* from) { return load_made(from); });
}

/// A row's h, 0 where `is_there` is false.
__device__ inline float4 ranks_of_row(const LowRankAddition& call, const LowRankFactor& factor,
                                      int row, bool is_there, int rank) {
  if (!is_there) return make_float4(0, 0, 0, 0);
  const float* line = call.h_TR + static_cast<int64_t>(row) * call.h_pitch + factor.column;
  return load_four(line + rank, factor.rank - rank, has_whole_fours(line, 0),
                   [](const auto* from) { return load_past_l1(from); });
}

/// The same of row_of(i) for i < kCount, all loads of which are in flight at once.
template <int kCount, typename RowOf>
__device__ inline void load_rows(const LowRankAddition& call, const LowRankFactor& factor, int rows,
                                 int rank, const RowOf& row_of, float4 (&h)[kCount]) {
  const float* const first = call.h_TR + factor.column + rank;
  const bool has_fours = factor.rank % 4 == 0 && factor.column % 4 == 0 && call.h_pitch % 4 == 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = row_of(i);
    h[i] = has_fours ? load_past_l1_if(row < rows && rank < factor.rank,
                                       first + static_cast<int64_t>(row) * call.h_pitch)
                     : ranks_of_row(call, factor, row, row < rows, rank);
  }
}

/// The adapter that each row takes; `slot_T`: shared memory of `rows` numbers. Where rows take adapters of their own,
/// and by all of `threads`, before they synchronise.
__device__ inline void find_slots(const LowRankAddition& call, int threads, int* slot_T) {
  if (call.h_TR == nullptr) return;
  for (int n = threadIdx.x; n < call.by_row.tiles * LowRankRows::kRows; n += threads) {
    const int row = call.by_row.row_N[n];
    if (row >= 0) slot_T[row] = call.by_row.slot_N[n / LowRankRows::kRows];
  }
}

/// visit(factors, takes) for each adapter that some row takes; takes(row): whether that one does.
template <typename Visit>
__device__ inline void for_each_adapter(const LowRankAddition& call, const int* slot_T,
                                        const Visit& visit) {
  if (call.by_row.tiles == 0) return visit(call.factors, [](int) { return true; });
  int last = -1;
  for (int tile = 0; tile < call.by_row.tiles; ++tile) {
    const int slot = call.by_row.slot_N[tile];
    if (slot < 0 || slot == last) continue;
    last = slot;
    visit(call.by_row.table[slot], [=](int row) { return slot_T[row] == slot; });
  }
}

/// The matrix's output that is output `local` of a thread block, whose tiling has units of one output or of a gate and
/// its up; -1: there is none.
template <typename Tiling>
__device__ inline int output_of(const Tiling& tiling, int units, int local) {
  const int half = tiling.is_pairs ? local / tiling.box : 0;
  const int unit = static_cast<int>(blockIdx.x) * tiling.box + local - half * tiling.box;
  return local < tiling.block_outputs() && unit < units ? half * units + unit : -1;
}

/// Whether one of a lane's two outputs, output_of(half), is the factor's.
template <typename OutputOf>
__device__ inline bool has_output(const LowRankFactor& factor, const OutputOf& output_of) {
  bool has_some = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = output_of(half);
    has_some = has_some || (output >= factor.begin && output < factor.end);
  }
  return has_some;
}

inline constexpr int kHeldSteps = 2;

/// A lane's first ranks, of kHeldSteps steps, of the first factor that has some of its warp's outputs, where all rows take
/// one adapter: loaded before the main loop.
struct HeldFactor {
  int which = -1;
  FourRanks b[kHeldSteps][2];  // of both halves of a fragment

  /// output_of(half): a lane's output of the half, -1: there is none.
  template <typename OutputOf>
  __device__ void load(const LowRankAddition& call, const OutputOf& output_of) {
    const int quarter = threadIdx.x % 4;
    for (int i = 0; i < call.factors.count && which < 0; ++i) {
      const LowRankFactor& factor = call.factors.of[i];
      if (!any_lane(has_output(factor, output_of))) continue;
      which = i;
      load_outputs<2 * kHeldSteps>(
          factor, [&](int n) { return output_of(n % 2); },
          [&](int n) { return kRanksOfStep * (n / 2) + 4 * quarter; },
          reinterpret_cast<FourRanks(&)[2 * kHeldSteps]>(b));
    }
  }
};

__device__ inline int staged_pitch(const LowRankAddition& call) {
  return staged_hidden_pitch(call.h_pitch);
}

/// h of all rows into shared memory, by all of `threads`, before they synchronise.
__device__ inline void stage_hidden(const LowRankAddition& call, int rows, int threads,
                                    float* staged) {
  const int pitch = staged_pitch(call);
  if (call.h_pitch % 4 == 0) {
    constexpr int kAtOnce = 4;
    const int fours = call.h_pitch / 4, all = rows * fours;
    for (int begin = threadIdx.x; begin < all; begin += kAtOnce * threads) {
      float4 h[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        h[i] = load_past_l1_if(begin + i * threads < all, call.h_TR + 4 * (begin + i * threads));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int n = begin + i * threads;
        if (n < all) *reinterpret_cast<float4*>(staged + n / fours * pitch + n % fours * 4) = h[i];
      }
    }
    return;
  }
  for (int n = threadIdx.x; n < rows * call.h_pitch; n += threads)
    staged[n / call.h_pitch * pitch + n % call.h_pitch] = load_past_l1(call.h_TR + n);
}

/// As add_low_rank() of one tile of outputs, of rows that take one adapter, with h in shared memory: the same sums in the
/// same order.
template <int kColumns, typename OutputOf>
__device__ inline void add_held_factor(const LowRankAddition& call, int rows,
                                       const HeldFactor& held, const float* staged,
                                       const OutputOf& output_of, float* sum) {
  const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  const int pitch = staged_pitch(call);
  for (int which = 0; which < call.factors.count; ++which) {
    const LowRankFactor& factor = call.factors.of[which];
    if (!any_lane(has_output(factor, output_of))) continue;
    const auto add = [&](int first, const FourRanks& upper, const FourRanks& lower) {
      const int rank = first + 4 * quarter;
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        const int row = 8 * column + group;
        const float* line = staged + row * pitch + factor.column;
        float4 h = make_float4(0, 0, 0, 0);
        if (row < rows)
          h = load_four(line + rank, factor.rank - rank, factor.column % 4 == 0,
                        [](const auto* from) { return *from; });
        float(&of)[4] = *reinterpret_cast<float(*)[4]>(sum + column * 4);
        const FourRanks parts[2] = {packed(h), packed(rest_of(h))};
#pragma unroll
        for (const FourRanks& part : parts)
          multiply<BFloat16>(of, upper.low, lower.low, upper.high, lower.high, part.low, part.high);
      }
    };
    const bool is_held = which == held.which;
#pragma unroll
    for (int step = 0; step < kHeldSteps; ++step)
      if (is_held && kRanksOfStep * step < factor.rank)
        add(kRanksOfStep * step, held.b[step][0], held.b[step][1]);
    for (int first = is_held ? kRanksOfStep * kHeldSteps : 0; first < factor.rank;
         first += kRanksOfStep)
      add(first, ranks_of_output(factor, output_of(0), first + 4 * quarter),
          ranks_of_output(factor, output_of(1), first + 4 * quarter));
  }
}

/// A lane's numbers of a step of ranks for its outputs. True: some lane of the warp has some.
template <int kTiles, typename OutputOf>
__device__ inline bool load_step(const LowRankAddition& call, const LowRankFactor& factor,
                                 int first, const OutputOf& output_of, FourRanks (&b)[kTiles][2]) {
  const int rank = first + 4 * (threadIdx.x % 4);
  const auto of_factors = [&](int i) {
    const int output = output_of(i / 2, i % 2);
    return output < 0 ? -1 : output + call.first_output;
  };
  bool has_some = false;
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i)
    has_some = has_some || (of_factors(i) >= factor.begin && of_factors(i) < factor.end);
  if (!any_lane(has_some)) return false;
  if constexpr (kTiles <= 2) {
    load_outputs<2 * kTiles>(
        factor, of_factors, [&](int) { return rank; },
        reinterpret_cast<FourRanks(&)[2 * kTiles]>(b));
  } else {  // of more tiles the registers would be the kernel's most
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      b[i / 2][i % 2] = ranks_of_output(factor, of_factors(i), rank);
  }
  return true;
}

/// The first step that add_low_rank() takes, loaded while h is on its way. Of rows that take one adapter.
template <int kTiles>
struct HeldStep {
  int which = -1, first = 0;  // factor, rank
  FourRanks b[kTiles][2];

  template <typename OutputOf>
  __device__ void load(const LowRankAddition& call, int sharer, int sharers,
                       const OutputOf& output_of) {
    int step = 0;
    for (int i = 0; i < call.factors.count; ++i) {
      const LowRankFactor& factor = call.factors.of[i];
      for (int rank = 0; rank < factor.rank; rank += kRanksOfStep, ++step) {
        if (step % sharers != sharer || !load_step(call, factor, rank, output_of, b)) continue;
        which = i;
        first = rank;
        return;
      }
    }
  }
};

/// Adds to accumulators of which outputs are M and rows N: fragment (tile, column) is at sum[(tile * kColumns + column)
/// * 4], output_of(tile, half) is a lane's output (-1: none), its row 8 column + lane / 4. Of several warps that share
/// the outputs each takes every `sharers`-th step of ranks. `held`: of the same arguments, or nothing.
/// `shared`: h in shared memory, rows of `pitch` floats, or null. kMayPoll: h may be LowRankAddition::is_polled.
template <int kTiles, int kColumns, bool kMayPoll, typename OutputOf>
__device__ inline void add_low_rank(const LowRankAddition& call, int rows, const int* slot_T,
                                    const float* shared, int pitch, int sharer, int sharers,
                                    const HeldStep<kTiles>& held, const OutputOf& output_of,
                                    float* sum) {
  const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  for_each_adapter(call, slot_T, [&](const LowRankFactors& factors, auto takes) {
    int step = 0;
    for (int which = 0; which < factors.count; ++which) {
      const LowRankFactor& factor = factors.of[which];
      for (int first = 0; first < factor.rank; first += kRanksOfStep, ++step) {
        if (step % sharers != sharer) continue;
        const int rank = first + 4 * quarter;
        FourRanks b[kTiles][2];
        if (which == held.which && first == held.first) {
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) b[tile][half] = held.b[tile][half];
          }
        } else if (!load_step(call, factor, first, output_of, b)) {
          continue;
        }
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
          const int row = 8 * column + group;
          const bool is_there = row < rows && takes(row);
          float4 h;
          if (shared != nullptr) {
            const float* line = shared + row * pitch + factor.column;
            h = load_four(line + rank, is_there ? factor.rank - rank : 0,
                          !kMayPoll && factor.column % 4 == 0,
                          [](const auto* from) { return *from; });
          } else if (kMayPoll && call.is_polled) {
            h = polled_ranks_of_row(call, factor, row, is_there, rank);
            sync_lanes();
          } else {
            h = ranks_of_row(call, factor, row, is_there, rank);
          }
          const FourRanks parts[2] = {packed(h), packed(rest_of(h))};
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            float(&of)[4] = *reinterpret_cast<float(*)[4]>(sum + (tile * kColumns + column) * 4);
#pragma unroll
            for (const FourRanks& part : parts)
              multiply<BFloat16>(of, b[tile][0].low, b[tile][1].low, b[tile][0].high,
                                 b[tile][1].high, part.low, part.high);
          }
        }
      }
    }
  });
}

#endif

}  // namespace slime::kernels::cuda
