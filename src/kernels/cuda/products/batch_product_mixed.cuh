#pragma once

/// A batch's product (batch_product_kernel.cuh) whose rows take adapters of their own: warps beside the consumers make h
/// of all adapters, in units as batch_product_share.cuh does for one, and hold B in shared memory as fragments.
///
/// The accumulators pass through shared memory. There all warps add, each some of 16 outputs and eight rows of one adapter:
/// rows that take another one, or none, are not touched. A row's bits are those of a batch that takes its adapter.

#include <type_traits>

#include "kernels/cuda/products/batch_product_kernel.cuh"
#include "kernels/cuda/products/batch_product_mixed_table.cuh"

namespace slime::kernels::cuda::batch {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Named barriers 5 and on: a group of kShareThreads.
__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(5 + group), "r"(kShareThreads) : "memory");
}
/// Named barrier 4: consumers and the warps that make h.
__device__ inline void sync_workers(int workers) {
  asm volatile("bar.sync 4, %0;" ::"r"(workers) : "memory");
}
/// Named barrier 2: one warp waits until the others have done with the flags.
__device__ inline void arrive_done_with_flags() {
  asm volatile("bar.arrive 2, %0;" ::"r"(kMixedThreads + 32) : "memory");
}
__device__ inline void wait_done_with_flags() {
  asm volatile("bar.sync 2, %0;" ::"r"(kMixedThreads + 32) : "memory");
}

/// The index is one of a warp's, and so are tile and unit.
__device__ inline HiddenUnit mixed_unit(const Arguments& a, const MixedTable& table, int index,
                                        int& tile) {
  tile = tile_of_unit(table, index);
  const int lane = threadIdx.x % 32, of_tile = index - (tile > 0 ? table.end_unit_N[tile - 1] : 0);
  const int chunk = of_tile / kHiddenShares;
  const int first = table.first_chunk_D[table.adapter_N[tile]];
  const MixedFactor& factor = table.of_F[table.factor_C[first + chunk]];
  const int rank = (chunk - factor.first_chunk) * kUnitRanks + lane / 4;
  const float* line = factor.a + static_cast<int64_t>(rank) * a.inputs + 4 * (lane % 4);
  const int8_t* rows = table.row_N + tile * LowRankRows::kRows + lane / 4;
  return HiddenUnit(a, rank < factor.rank ? line : nullptr, chunk, of_tile % kHiddenShares, rows[0],
                    rows[8]);
}

/// A from step `first` of the unit on into the second-level cache, by a group. Lanes of a warp ask one after the other, so each
/// warp has two.
__device__ inline void prefetch_unit(const HiddenUnit& unit, int thread, int first) {
  const int steps = unit.end - unit.begin - first;
  if (unit.line == nullptr || steps <= 0 || thread % 4 > 0) return;
  if (thread % 32 / 4 % kShareWarps != thread / 32) return;
  prefetch_piece_to_l2(unit.line + kHiddenStep * (unit.begin + first),
                       4 * kHiddenStep * static_cast<uint32_t>(steps));
}

/// B of a thread block's outputs likewise, by all warps.
__device__ inline void prefetch_factors(const Arguments& a, const MixedTable& table, int thread) {
  const int f = thread / 32 + kMixedThreads / 32 * (thread % 32);
  if (f >= table.first_factor_D[table.adapters]) return;
  const MixedFactor factor = table.of_F[f];
  if (factor.tiles == 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const OutputRange range(a.tiling, a.units, a.addition.first_output, blockIdx.x, factor.begin,
                            factor.end, half);
    if (range.is_empty()) continue;
    const float* from = factor.b + static_cast<int64_t>(range.from) * factor.pitch;
    const auto begin = reinterpret_cast<uintptr_t>(from) / 16,
               end = reinterpret_cast<uintptr_t>(from + (range.end - range.begin) * factor.pitch) /
                     16;
    if (begin < end)
      prefetch_piece_to_l2(reinterpret_cast<const void*>(16 * begin),
                           static_cast<uint32_t>(16 * (end - begin)));
  }
}

/// By a group. `thread`: of kShareThreads.
__device__ inline void make_mixed_unit(const Arguments& a, const MixedTable& table, int index,
                                       int group, int thread, const HeldRanks* held,
                                       float* of_chains) {
  int tile = 0;
  const HiddenUnit unit = mixed_unit(a, table, index, tile);
  const float total = sum_of_unit(a, unit, thread, held, of_chains, [group] { sync_group(group); });
  const int row = table.row_N[tile * LowRankRows::kRows + thread / kUnitRanks];
  if (row >= 0) {
    const int line = (unit.chunk * kHiddenShares + unit.share) * a.rows + row;
    a.addition.h_TR[line * kUnitRanks + thread % kUnitRanks] = total;
  }
  sync_group(group);  // all have stored, and nobody reads the chains any more
}

/// A group's flag has the number of its first unit, and says that it has made all of its own. True when four are set, those
/// from 4 `four` on of the first `flags`, of which the first kFirstHiddenFlag are none; false after many looks.
__device__ inline bool wait_for_flags(const Arguments& a, int four, int flags) {
  constexpr int kLooks = 1 << 10;  // most of a millisecond
  for (int look = 0; look < kLooks; ++look) {
    unsigned flag[4];
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(flag[0]), "=r"(flag[1]), "=r"(flag[2]), "=r"(flag[3])
                 : "l"(a.addition.flags + 4 * four)
                 : "memory");
    bool are_set = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = 4 * four + i;
      are_set = are_set && (n < kFirstHiddenFlag || n >= flags || flag[i] != 0);
    }
    if (are_set) {
      __threadfence();
      return true;
    }
  }
  return false;
}

/// The matrix's output that is a lane's of 16, counted as factors do; -1: there is none. As output_of(), without a division.
__device__ inline int output_of_tile(const Arguments& a, int tile, int half) {
  const Tiling& tiling = a.tiling;
  const int local = kFragmentOutputs * tile + threadIdx.x % 32 / 4 + 8 * half;
  const bool is_up = tiling.is_pairs && local >= tiling.box;
  const int unit = static_cast<int>(blockIdx.x) * tiling.box + local - (is_up ? tiling.box : 0);
  if (local >= tiling.block_outputs() || unit >= a.units) return -1;
  return unit + (is_up ? a.units : 0) + a.addition.first_output;
}

/// Whether all of a factor's ranks are read as fours.
__device__ inline bool has_only_fours(const MixedFactor& factor) {
  return factor.rank % 4 == 0 && has_whole_fours(factor.b, factor.pitch);
}

/// A lane's four ranks of B from `rank` on, 0 outside of the factor. kIsWhole: of has_only_fours(), without a branch.
template <bool kIsWhole>
__device__ inline float4 load_ranks(const MixedFactor& factor, int output, int rank) {
  const bool is_there = output >= factor.begin && output < factor.end && rank < factor.rank;
  const float* from = factor.b + static_cast<int64_t>(output - factor.begin) * factor.pitch + rank;
  if constexpr (kIsWhole) return load_read_only_if(is_there, from);
  return load_four(from, is_there ? factor.rank - rank : 0, /*is_whole=*/false,
                   [](const auto* number) { return load_read_only(number); });
}
__device__ inline FourRanks ranks_of_tile(const Arguments& a, const MixedFactor& factor, int tile,
                                          int half, int rank) {
  const int output = output_of_tile(a, tile, half);
  return packed(has_only_fours(factor) ? load_ranks<true>(factor, output, rank)
                                       : load_ranks<false>(factor, output, rank));
}

/// Fragments [begin, end) of B into shared memory, by all warps that make h. [fragment, output, four ranks]
__device__ inline void stage_fragments(const Arguments& a, const MixedTable& table, int thread,
                                       int begin, int end, uint2* fragments) {
  constexpr int kWarps = kMixedThreads / 32;
  const int lane = thread % 32, quarter = lane % 4;
  for (int first = begin + thread / 32; first < end; first += kFragmentsAtOnce * kWarps) {
    float4 b[kFragmentsAtOnce][2];
    const auto load = [&](auto is_whole) {
#pragma unroll
      for (int i = 0; i < kFragmentsAtOnce; ++i) {
        const int fragment = min(first + kWarps * i, end - 1);
        const int place = table.place_B[fragment], tile = place % 16;
        const MixedFactor& factor = table.of_F[place / 16];
        const int rank = (fragment - factor.fragment(tile)) * kRanksOfStep + 4 * quarter;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          b[i][half] =
              load_ranks<decltype(is_whole)::value>(factor, output_of_tile(a, tile, half), rank);
      }
    };
    bool are_whole = true;
#pragma unroll
    for (int i = 0; i < kFragmentsAtOnce; ++i) {
      const int place = table.place_B[min(first + kWarps * i, end - 1)];
      are_whole = are_whole && has_only_fours(table.of_F[place / 16]);
    }
    are_whole ? load(std::true_type()) : load(std::false_type());
#pragma unroll
    for (int i = 0; i < kFragmentsAtOnce; ++i) {
      const int fragment = first + kWarps * i;
      if (fragment >= end) continue;
      uint2* const to = fragments + fragment * (kFragmentBytes / 8) + lane;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const FourRanks ranks = packed(b[i][half]);
        to[32 * half] = make_uint2(ranks.low, ranks.high);
      }
    }
  }
}

/// h of all rows, from the units into shared memory: of each four ranks the numbers as 16 bits, and what that rounds
/// away. Of factors that the thread block adds. A warp has a chunk of 16 rows, or of fewer.
__device__ inline void stage_mixed_units(const Arguments& a, const MixedTable& table, int thread,
                                         uint4* hidden) {
  constexpr int kFours = kUnitRanks / 4;
  const int chunks = mixed_fours(a.addition.by_row.most_chunks) / kFours,
            pitch = mixed_pitch(a.addition.by_row.most_chunks);
  const int rows_of_warps = round_up(a.rows, 32 / kFours);
  for (int n = thread; n < chunks * rows_of_warps * kFours; n += kMixedThreads) {
    const int row = n / kFours % rows_of_warps, chunk = n / (kFours * rows_of_warps);
    const int d = row < a.rows ? table.adapter_T[row] : -1;
    if (d < 0) continue;
    const int of_all = table.first_chunk_D[d] + chunk;
    if (of_all >= table.first_chunk_D[d + 1]) continue;
    const MixedFactor& factor = table.of_F[table.factor_C[of_all]];
    if (factor.tiles == 0) continue;
    const auto* from = reinterpret_cast<const float4*>(a.addition.h_TR) +
                       (chunk * kHiddenShares * a.rows + row) * kFours + n % kFours;
    float4 total = make_float4(0, 0, 0, 0);
    add_partials<kHiddenShares>(total, from, a.rows * kFours, kHiddenShares);
    const int there = factor.rank - (chunk - factor.first_chunk) * kUnitRanks - 4 * (n % kFours);
    const float4 h = make_float4(
        there > 0 ? factor.scale * total.x : 0.0F, there > 1 ? factor.scale * total.y : 0.0F,
        there > 2 ? factor.scale * total.z : 0.0F, there > 3 ? factor.scale * total.w : 0.0F);
    const FourRanks high = packed(h), low = packed(rest_of(h));
    hidden[row * pitch + kFours * chunk + n % kFours] =
        make_uint4(high.low, high.high, low.low, low.high);
  }
}

/// h B^T to the sums in shared memory, by warp `worker` of `workers`.
__device__ inline void add_mixed(const MixedArguments& m, const MixedTable& table,
                                 const uint4* hidden, const uint2* fragments, int worker,
                                 int workers, float* sums) {
  constexpr int kOfColumn = LowRankRows::kRows / 2, kFours = kUnitRanks / 4;
  const Arguments& a = m.product;
  const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  const int tiles = output_tiles(a), pitch = SharedLayout::pitch(a.tiling),
            hidden_pitch = mixed_pitch(a.addition.by_row.most_chunks);
  for (int n = worker; n < table.columns * tiles; n += workers) {
    const int column = table.column_L[n / tiles], tile = n % tiles;
    const int d = table.adapter_N[column / 2];
    const int8_t* rows = table.row_N + kOfColumn * column;
    float sum[4];
    float* at[4];  // null: there is no such row or output
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = rows[2 * quarter + i % 2],
                local = kFragmentOutputs * tile + group + i / 2 * 8;
      at[i] = row >= 0 && local < a.tiling.block_outputs() ? sums + row * pitch + local : nullptr;
      sum[i] = at[i] != nullptr ? *at[i] : 0.0F;
    }
    const int row = rows[group], end = table.first_factor_D[d + 1];
    for (int f = table.first_factor_D[d]; f < end; ++f) {
      const MixedFactor& factor = table.of_F[f];
      if (!factor.has(tile)) continue;
      const int steps = factor.steps(), first = factor.fragment(tile);
      const int fours = hidden_chunks(factor.rank) * kFours;
      const uint4* line = hidden + row * hidden_pitch + factor.first_chunk * kFours;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        FourRanks upper, lower;
        if (first + step < m.layout.fragments) {
          const uint2* from = fragments + (first + step) * (kFragmentBytes / 8) + lane;
          upper = {from[0].x, from[0].y};
          lower = {from[32].x, from[32].y};
        } else {
          const int rank = kRanksOfStep * step + 4 * quarter;
          upper = ranks_of_tile(a, factor, tile, 0, rank);
          lower = ranks_of_tile(a, factor, tile, 1, rank);
        }
        const int four = kRanksOfStep / 4 * step + quarter;
        uint4 h = make_uint4(0, 0, 0, 0);
        if (row >= 0 && four < fours) h = line[four];
        multiply<BFloat16>(sum, upper.low, lower.low, upper.high, lower.high, h.x, h.y);
        multiply<BFloat16>(sum, upper.low, lower.low, upper.high, lower.high, h.z, h.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (at[i] != nullptr) *at[i] = sum[i];
  }
}

/// As write_partial_sums() of the first split, of sums in shared memory.
__device__ inline void write_stored_partials(const Arguments& a, const float* sums, int thread,
                                             int threads) {
  const int first = blockIdx.x * a.tiling.box, pitch = SharedLayout::pitch(a.tiling);
  const int pieces = min(a.tiling.box, a.units - first) / kPiece;
  for (int n = thread; n < a.rows * pieces; n += threads) {
    const int row = n / pieces, output = n % pieces * kPiece;
    *reinterpret_cast<float4*>(static_cast<float*>(a.y) + static_cast<int64_t>(row) * a.units +
                               first + output) =
        *reinterpret_cast<const float4*>(sums + row * pitch + output);
  }
}

/// What all warps but the producers' do when they have their part: `thread` of `threads`.
__device__ inline void add_and_write(const MixedArguments& m, const MixedTable& table,
                                     unsigned char* memory, int thread, int threads) {
  auto* const sums = reinterpret_cast<float*>(memory);
  sync_workers(threads);
  add_mixed(m, table, reinterpret_cast<const uint4*>(memory + m.layout.hidden_begin),
            reinterpret_cast<const uint2*>(memory + m.layout.fragments_begin), thread / 32,
            threads / 32, sums);
  sync_workers(threads);
  if (m.product.epilogue == Epilogue::kSplitK) {
    write_stored_partials(m.product, sums, thread, threads);
  } else {
    write_stored(m.product, sums, m.product.tiling.box, SharedLayout::pitch(m.product.tiling),
                 thread, threads);
  }
}

/// Until h and B are in shared memory, or of other splits than the first h in memory. `thread`: of kMixedThreads.
///
/// What B has beyond kFirstFragments comes behind h, for which other thread blocks wait; main loops are long where it has
/// much. Until then it waits in the second-level cache.
__device__ inline void make_mixed(const MixedArguments& m, MixedTable& table, int thread,
                                  bool needs_all, unsigned char* memory) {
  constexpr int kFirstFragments = 2 * kFragmentsAtOnce * kMixedThreads / 32;
  const Arguments& a = m.product;
  const int group = thread / kShareThreads, of_group = thread % kShareThreads;
  auto* const fragments = reinterpret_cast<uint2*>(memory + m.layout.fragments_begin);
  find_rows(a, thread, table);
  find_factors(a, thread, needs_all, table);
  if (thread < 32) count_units(a, table);
  sync_mixed();
  const int units = table.end_unit_N[63];
  const int each = all_groups();
  const auto mine = [&] { return table.first_unit_G[group]; };  // no register for it
  const auto prefetch_others = [&] {
    for (int index = mine(); index < units; index += each) {
      int tile = 0;
      const HiddenUnit unit = mixed_unit(a, table, index, tile);
      prefetch_unit(unit, of_group, index == mine() ? kHiddenChains * HeldRanks::kSteps : 0);
    }
    if (needs_all) prefetch_factors(a, table, thread);
  };
  HeldRanks held;
  if (mine() < units) {
    int tile = 0;
    held.load(mixed_unit(a, table, mine(), tile), of_group, prefetch_others);
  } else {
    prefetch_others();
  }
  const auto staged = [&] { return min(table.fragments, m.layout.fragments); };
  if (needs_all) stage_fragments(a, table, thread, 0, min(kFirstFragments, staged()), fragments);
  grid_dependency_wait();
  float* const chains =
      reinterpret_cast<float*>(memory + m.layout.hidden_begin + group * hidden_bytes(1, 1));
  if (mine() < units) make_mixed_unit(a, table, mine(), group, of_group, &held, chains);
  for (int index = mine() + each; index < units; index += each)
    make_mixed_unit(a, table, index, group, of_group, nullptr, chains);
  if (mine() < units && of_group == 0) set_flag(a, mine());
  const int flags = kFirstHiddenFlag + min(units, each);
  if (thread == 0) table.flags = flags;
  if (!needs_all) return arrive_done_with_flags();
  stage_fragments(a, table, thread, kFirstFragments, staged(), fragments);
  bool are_made = true;
  for (int four = thread; four < divide_up(flags, 4); four += kMixedThreads)
    are_made = wait_for_flags(a, four, flags) && are_made;
  if (!all_of(kMixedThreads, are_made)) {
    for (int index = group; index < units; index += kMixedGroups)
      make_mixed_unit(a, table, index, group, of_group, nullptr, chains);
    sync_mixed();
  }
  arrive_done_with_flags();
  stage_mixed_units(a, table, thread, reinterpret_cast<uint4*>(memory + m.layout.hidden_begin));
}

#endif

inline constexpr int kMixedKernelThreads = 128 * kMostGroups + kProducerThreads + kMixedThreads;

/// kRows, kSlabs: as of batch_product_kernel().
template <int kRows, int kSlabs>
__global__ void __launch_bounds__(kMixedKernelThreads, 1)
    mixed_product_kernel(const __grid_constant__ MixedArguments m) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ MixedTable table;
  const Arguments& a = m.product;
  const int threads = static_cast<int>(blockDim.x) - kProducerThreads - kMixedThreads;
  const int workers = threads + kMixedThreads, group = threadIdx.x / 128;
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), a.layout.stages};
  const uint32_t x_full = shared_address(barriers.x_full);
  const int split = blockIdx.y, begin = a.tiling.k_tiles * split / a.tiling.splits,
            end = a.tiling.k_tiles * (split + 1) / a.tiling.splits;
  launch_dependents();
  if (threadIdx.x == threads) init_stages(a, pipeline, x_full, threads);
  __syncthreads();
  const int behind = static_cast<int>(threadIdx.x) - threads - kProducerThreads;
  if (behind >= 0) {
    make_mixed(m, table, behind, split == 0, memory);
    if (split > 0) return;
  } else if (threadIdx.x >= threads + 32) {
    if (threadIdx.x == threads + 32) load_x<kSlabs, false>(a, pipeline, x_full, begin, end);
    return;
  } else if (threadIdx.x >= threads) {
    if (threadIdx.x == threads) load_weights<kSlabs>(a, pipeline, begin, end);
    __syncwarp();
    wait_done_with_flags();
    forget_units(a, table.flags - kFirstHiddenFlag);
    return;
  } else {
    float sum[kRows / 2] = {};
    grid_dependency_wait();  // results that others may still read
    multiply_tiles<kRows, kSlabs>(a, pipeline, x_full, end - begin, group, sum);
    if (split > 0) return write_partial_sums<kRows>(a, group, sum);
    sync_consumers(threads);  // no warp still reads the stages that the sums overlay
    store_sums<kRows>(reinterpret_cast<float*>(memory), a.tiling.block_outputs(),
                      SharedLayout::pitch(a.tiling), group, sum);
  }
  add_and_write(m, table, memory, behind >= 0 ? threads + behind : static_cast<int>(threadIdx.x),
                workers);
#endif
}

}  // namespace slime::kernels::cuda::batch
