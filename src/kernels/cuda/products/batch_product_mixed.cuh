#pragma once

/// A batch's product (batch_product_kernel.cuh) whose rows take adapters of their own: warps beside the consumers make h
/// of all adapters, in units as batch_product_share.cuh does for one, and hold B in shared memory as fragments.
///
/// The accumulators pass through shared memory. There all warps add, each some of 16 outputs and eight rows of one adapter:
/// rows that take another one, or none, are not touched. A row's bits are those of a batch that takes its adapter.

#include "kernels/cuda/products/batch_product_kernel.cuh"
#include "kernels/cuda/products/batch_product_mixed_table.cuh"

namespace slime::kernels::cuda::batch {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Named barriers 5 and on: a group of kShareThreads.
__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(5 + group), "r"(kShareThreads) : "memory");
}
/// Whether all of kMixedThreads say so, in each of them.
__device__ inline bool all_of_mixed(bool is_true) {
  int all;
  asm volatile(
      "{\n"
      ".reg .pred one, every;\n"
      "setp.ne.s32 one, %1, 0;\n"
      "bar.red.and.pred every, 3, %2, one;\n"
      "selp.s32 %0, 1, 0, every;\n"
      "}\n"
      : "=r"(all)
      : "r"(static_cast<int>(is_true)), "r"(kMixedThreads)
      : "memory");
  return all != 0;
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

__device__ inline HiddenUnit mixed_unit(const Arguments& a, const MixedTable& table, int index,
                                        int& tile) {
  tile = 0;
  while (table.first_unit_N[tile + 1] <= index) ++tile;
  const int of_tile = index - table.first_unit_N[tile];
  const int* rows = table.row_N + tile * LowRankRows::kRows + threadIdx.x % 32 / 4;
  return HiddenUnit(a, a.addition.down_table[table.slot_N[tile]], of_tile / kHiddenShares,
                    of_tile % kHiddenShares, rows[0], rows[8]);
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
  if (thread == 0) set_flag(a, index);
}

/// The fragments that a warp stages, in their order.
struct FragmentCursor {
  const Arguments& a;
  const MixedTable& table;
  int tiles, room;
  int pair;  // an adapter, and 16 outputs
  int which = -1, first = 0, index = -1;
  const LowRankFactor* factor = nullptr;

  __device__ FragmentCursor(const MixedArguments& m, const MixedTable& of, int warp)
      : a(m.product), table(of), tiles(output_tiles(a)), room(m.layout.fragments), pair(warp) {
    if (pair < table.adapters * tiles) index = table.first_fragment_DM[pair] - 1;
  }
  __device__ int tile() const { return pair % tiles; }

  /// False: there is none, or no room for it.
  __device__ bool next() {
    if (factor != nullptr && first + kRanksOfStep < factor->rank) {
      first += kRanksOfStep;
      return ++index < room;
    }
    while (pair < table.adapters * tiles) {
      const LowRankFactors& factors = a.addition.by_row.table[table.slot_D[pair / tiles]];
      const int from = kFragmentOutputs * tile();
      for (++which; which < factors.count; ++which) {
        factor = factors.of + which;
        if (factor->rank == 0 || !meets(a, *factor, from, from + kFragmentOutputs)) continue;
        first = 0;
        return ++index < room;
      }
      pair += kMixedThreads / 32;
      which = -1;
      if (pair < table.adapters * tiles) index = table.first_fragment_DM[pair] - 1;
    }
    return false;
  }
};

/// The matrix's output that is a lane's of 16, counted as factors do; -1: there is none.
__device__ inline int output_of_tile(const Arguments& a, int tile, int half) {
  const int local = kFragmentOutputs * tile + threadIdx.x % 32 / 4 + 8 * half;
  const int output = output_of(a.tiling, a.units, local);
  return output < 0 ? -1 : output + a.addition.first_output;
}

/// B of all adapters into shared memory, by all warps that make h. [fragment, output, four ranks]
__device__ inline void stage_fragments(const MixedArguments& m, const MixedTable& table, int thread,
                                       uint2* fragments) {
  constexpr int kAtOnce = 3;
  const Arguments& a = m.product;
  const int lane = thread % 32, group = lane / 4, quarter = lane % 4;
  FragmentCursor cursor(m, table, thread / 32);
  for (bool has_more = true; has_more;) {
    float4 b[kAtOnce][2] = {};
    int to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      has_more = has_more && cursor.next();
      to[i] = has_more ? cursor.index : -1;
      if (!has_more) continue;
      const LowRankFactor factor = *cursor.factor;
      const int rank = cursor.first + 4 * quarter;
      const bool is_whole = has_only_fours(factor);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = output_of_tile(a, cursor.tile(), half);
        const bool is_there = output >= factor.begin && output < factor.end && rank < factor.rank;
        const float* from = factor.values + (output - factor.begin) * factor.pitch + rank;
        b[i][half] = load_read_only_if(is_there && is_whole, from);
        if (is_there && !is_whole)
          b[i][half] = load_four(from, factor.rank - rank, /*is_whole=*/false,
                                 [](const auto* number) { return load_read_only(number); });
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (to[i] < 0) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const FourRanks ranks = packed(b[i][half]);
        fragments[to[i] * (kFragmentBytes / 8) + (group + 8 * half) * 4 + quarter] =
            make_uint2(ranks.low, ranks.high);
      }
    }
  }
}

/// h of all rows, from the units into shared memory: of each four ranks the numbers as 16 bits, and what that rounds
/// away. Of factors that the thread block adds.
__device__ inline void stage_mixed_units(const Arguments& a, const MixedTable& table, int thread,
                                         uint4* hidden) {
  constexpr int kFours = kUnitRanks / 4;
  const int fours = mixed_fours(a.addition.by_row.most_chunks),
            pitch = mixed_pitch(a.addition.by_row.most_chunks);
  for (int n = thread; n < a.rows * fours; n += kMixedThreads) {
    const int row = n / fours, four = n % fours, chunk = four / kFours;
    const int tile = table.tile_T[row];
    if (tile < 0) continue;
    const LowRankFactors& factors = a.addition.down_table[table.slot_N[tile]];
    int which = 0, first = 0;
    while (which < factors.count && first + hidden_chunks(factors.of[which]) <= chunk)
      first += hidden_chunks(factors.of[which++]);
    if (which == factors.count) continue;
    const LowRankFactor& added = a.addition.by_row.table[table.slot_N[tile]].of[which];
    if (!meets(a, added, 0, a.tiling.block_outputs())) continue;
    const LowRankFactor& factor = factors.of[which];
    const auto* from = reinterpret_cast<const float4*>(a.addition.h_TR) +
                       (chunk * kHiddenShares * a.rows + row) * kFours + four % kFours;
    float4 total = make_float4(0, 0, 0, 0);
    add_partials<kHiddenShares>(total, from, a.rows * kFours, kHiddenShares);
    const int there = factor.rank - 4 * (four - kFours * first);
    const float4 h = make_float4(
        there > 0 ? factor.scale * total.x : 0.0F, there > 1 ? factor.scale * total.y : 0.0F,
        there > 2 ? factor.scale * total.z : 0.0F, there > 3 ? factor.scale * total.w : 0.0F);
    const FourRanks high = packed(h), low = packed(rest_of(h));
    hidden[row * pitch + four] = make_uint4(high.low, high.high, low.low, low.high);
  }
}

/// h B^T to the sums in shared memory, by warp `worker` of `workers`.
__device__ inline void add_mixed(const MixedArguments& m, const MixedTable& table,
                                 const uint4* hidden, const uint2* fragments, int worker,
                                 int workers, float* sums) {
  constexpr int kOfColumn = LowRankRows::kRows / 2;
  const Arguments& a = m.product;
  const int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
  const int tiles = output_tiles(a), pitch = SharedLayout::pitch(a.tiling),
            hidden_pitch = mixed_pitch(a.addition.by_row.most_chunks);
  for (int n = worker; n < table.columns * tiles; n += workers) {
    const int column = table.column_C[n / tiles], tile = n % tiles, adapter_tile = column / 2;
    const int* rows = table.row_N + kOfColumn * column;
    float sum[4];
    float* at[4];  // null: there is no such row or output
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = rows[2 * quarter + i % 2],
                local = kFragmentOutputs * tile + group + i / 2 * 8;
      at[i] = row >= 0 && local < a.tiling.block_outputs() ? sums + row * pitch + local : nullptr;
      sum[i] = at[i] != nullptr ? *at[i] : 0.0F;
    }
    const int row = rows[group];
    int fragment = table.first_fragment_DM[table.adapter_N[adapter_tile] * tiles + tile];
    for_each_factor(
        a, table.slot_N[adapter_tile], tile, [&](const LowRankFactor& factor, int chunk) {
          const int fours = hidden_chunks(factor) * (kUnitRanks / 4);
          const uint4* line = hidden + row * hidden_pitch + chunk * (kUnitRanks / 4);
          for (int first = 0; first < factor.rank; first += kRanksOfStep, ++fragment) {
            FourRanks upper, lower;
            if (fragment < m.layout.fragments) {
              const uint2* from = fragments + fragment * (kFragmentBytes / 8) + group * 4 + quarter;
              upper = {from[0].x, from[0].y};
              lower = {from[32].x, from[32].y};
            } else {
              upper = ranks_of_output(factor, output_of_tile(a, tile, 0), first + 4 * quarter);
              lower = ranks_of_output(factor, output_of_tile(a, tile, 1), first + 4 * quarter);
            }
            const int four = first / 4 + quarter;
            uint4 h = make_uint4(0, 0, 0, 0);
            if (row >= 0 && four < fours) h = line[four];
            multiply<BFloat16>(sum, upper.low, lower.low, upper.high, lower.high, h.x, h.y);
            multiply<BFloat16>(sum, upper.low, lower.low, upper.high, lower.high, h.z, h.w);
          }
        });
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
__device__ inline void make_mixed(const MixedArguments& m, MixedTable& table, int thread,
                                  bool needs_all, unsigned char* memory) {
  const Arguments& a = m.product;
  const int group = thread / kShareThreads, of_group = thread % kShareThreads;
  float* const chains =
      reinterpret_cast<float*>(memory + m.layout.hidden_begin + group * hidden_bytes(1, 1));
  find_units(a, thread, table);
  const int units = table.first_unit_N[a.addition.by_row.tiles];
  // Thread blocks of other splits, which stage nothing, make the first ones.
  const int others = gridDim.x * (gridDim.y - 1),
            each = kMixedGroups * static_cast<int>(gridDim.x * gridDim.y);
  const int mine = static_cast<int>(blockIdx.x) +
                   (needs_all ? kMixedGroups * others + group * static_cast<int>(gridDim.x)
                              : group * others + static_cast<int>((blockIdx.y - 1) * gridDim.x));
  int tile = 0;
  HeldRanks held;
  if (mine < units) {
    held.load(mixed_unit(a, table, mine, tile), of_group);
    // The others wait in the second-level cache.
    for (int index = mine; index < units; index += each)
      mixed_unit(a, table, index, tile).prefetch(of_group);
  }
  if (needs_all) {
    find_fragments(a, thread, table);
    stage_fragments(m, table, thread, reinterpret_cast<uint2*>(memory + m.layout.fragments_begin));
  }
  grid_dependency_wait();
  if (mine < units) make_mixed_unit(a, table, mine, group, of_group, &held, chains);
  for (int index = mine + each; index < units; index += each)
    make_mixed_unit(a, table, index, group, of_group, nullptr, chains);
  if (needs_all) {
    bool are_made = true;
    for (int index = thread; index < units; index += kMixedThreads)
      are_made = wait_for_unit(a, index) && are_made;
    if (!all_of_mixed(are_made)) {
      for (int index = group; index < units; index += kMixedGroups)
        make_mixed_unit(a, table, index, group, of_group, nullptr, chains);
      sync_mixed();
    }
    arrive_done_with_flags();
    stage_mixed_units(a, table, thread, reinterpret_cast<uint4*>(memory + m.layout.hidden_begin));
  } else {
    arrive_done_with_flags();
  }
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
  if (threadIdx.x == threads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(x_full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, threads / 128);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int behind = static_cast<int>(threadIdx.x) - threads - kProducerThreads;
  if (behind >= 0) {
    make_mixed(m, table, behind, split == 0, memory);
    if (split == 0) add_and_write(m, table, memory, threads + behind, workers);
    return;
  }
  if (threadIdx.x >= threads + 32) {
    if (threadIdx.x == threads + 32) load_x<kSlabs, false>(a, pipeline, x_full, begin, end);
    return;
  }
  if (threadIdx.x >= threads) {
    if (threadIdx.x == threads) load_weights<kSlabs>(a, pipeline, begin, end);
    __syncwarp();
    wait_done_with_flags();
    forget_units(a, table.first_unit_N[a.addition.by_row.tiles]);
    return;
  }
  float sum[kRows / 2] = {};
  grid_dependency_wait();  // results that others may still read
  multiply_tiles<kRows, kSlabs>(a, pipeline, x_full, end - begin, group, sum);
  if (split > 0) return write_partial_sums<kRows>(a, group, sum);
  sync_consumers(threads);  // no warp still reads the stages that the sums overlay
  store_sums<kRows>(reinterpret_cast<float*>(memory), a.tiling.block_outputs(),
                    SharedLayout::pitch(a.tiling), group, sum);
  add_and_write(m, table, memory, threadIdx.x, workers);
#endif
}

}  // namespace slime::kernels::cuda::batch
