#pragma once

/// The kernel of kernels/cuda/products/narrow_product.h.
///
/// Warp-specialised with sliced K: a thread block computes up to 192 outputs (weight rows) over all
/// inputs. One producer thread copies weights, stage by stage, through a pipeline in shared memory;
/// of each stage a consumer warp multiplies its slice of the inputs (16 or more) with all outputs,
/// or with every other 16 of them, and the epilogue adds up the warps' accumulators. Outputs are M
/// of the mma instruction; rows of x are N, eight, of which the last real one is repeated.

#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/low_rank_prefetch.cuh"
#include "kernels/cuda/products/low_rank_share.cuh"
#include "kernels/cuda/products/narrow_product_prologue.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::narrow {

/// Behind the producer, where the kernel makes adapters' h itself: warps that do nothing else.
inline constexpr int kShareWarps = 4, kShareThreads = 32 * kShareWarps;

struct Barriers {
  uint64_t full[kMaxStages], empty[kMaxStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The producer, by one thread.
__device__ inline void load_weights(const Arguments& a, const Pipeline& pipeline) {
  const int first = blockIdx.x * a.tiling.box;
  PipelineState state, oldest;  // oldest: of the stages that may still be in flight
  for (int k_tile = 0; k_tile < a.tiling.k_tiles; ++k_tile) {
    if (k_tile >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    if (k_tile >= a.layout.stages_in_flight) {
      wait(pipeline.full + 8 * oldest.stage, oldest.phase);
      oldest.advance(1, pipeline.stages);
    }
    const uint32_t barrier = pipeline.full + 8 * state.stage;
    arrive_expect_tx(barrier, SharedLayout::stage_bytes(a.tiling));
    copy_group_once(pipeline.memory + state.stage * a.layout.stage_stride, a.weights, first,
                    k_tile * a.tiling.slabs, barrier);
    state.advance(1, pipeline.stages);
  }
}

/// Address of 16-byte piece `piece` of the 128-byte line at `line`, swizzled as tile_map() stores
/// it.
__device__ inline uint32_t piece_of(uint32_t line, int piece) {
  return line + ((piece ^ (line >> 7 & 7)) << 4);
}

/// Outputs, or pairs of gate and up.
__device__ inline int units_of(const Arguments& a) {
  return a.tiling.is_pairs ? a.call.outputs / 2 : a.call.outputs;
}

/// Named barrier 2: consumers, which have left x in shared memory, and the warps that make h of it.
__device__ inline void arrive_with_x() {
  asm volatile("bar.arrive 2, %0;" ::"r"(kThreads + kShareThreads) : "memory");
}
__device__ inline void wait_for_x() {
  asm volatile("bar.sync 2, %0;" ::"r"(kThreads + kShareThreads) : "memory");
}

/// Named barrier 4: consumers wait for one warp, which waits for all of h; or, where they wait for its numbers themselves,
/// that warp for them.
constexpr int kWaitingThreads = kThreads + 32;
__device__ inline void sync_with_h() {
  asm volatile("bar.sync 4, %0;" ::"r"(kWaitingThreads) : "memory");
}

/// Numbers of h that shared memory has room for, where its numbers are waited for themselves: the warps that make h then
/// wait while the others multiply weights.
inline constexpr int kStagedNumbers = 512;
__device__ inline bool stages_h(const Arguments& a) {
  return a.call.addition.is_polled && a.call.rows * a.call.addition.h_pitch <= kStagedNumbers;
}
/// Named barrier 5: consumers wait for h in shared memory.
__device__ inline void arrive_with_staged() {
  asm volatile("bar.arrive 5, %0;" ::"r"(kThreads + kShareThreads) : "memory");
}
__device__ inline void wait_for_staged() {
  asm volatile("bar.sync 5, %0;" ::"r"(kThreads + kShareThreads) : "memory");
}
__device__ inline void sync_share() {
  asm volatile("bar.sync 3, %0;" ::"r"(kShareThreads) : "memory");
}

/// By the warps behind the producer. With a norm h is of x before the division by its root mean square.
__device__ inline void make_share_of_x(const Arguments& a, uint32_t x, const int* slot_T,
                                       float* parts, float* staged) {
  const int thread = threadIdx.x - kThreads - 32, makers = cuda::makers(a.processors);
  HeldLine held;
  held.load(a.call.addition, a.call.inputs, makers, thread, kShareThreads);
  prefetch_share(a.call.addition, a.call.inputs, makers, thread, kShareThreads);
  const auto output = [&](int local) { return output_of(a.tiling, units_of(a), local); };
  const bool chooses = a.call.addition.by_row.tiles > 0;  // the tiles are the step's
  if (!chooses)
    prefetch_addition(a.call.addition, a.tiling.block_outputs(), thread, kShareThreads, output);
  wait_for_x();
  if (chooses)
    prefetch_addition(a.call.addition, a.tiling.block_outputs(), thread, kShareThreads, output);
  make_share(
      a.call.addition, a.call.rows, a.call.inputs, slot_T, makers, thread, kShareThreads, held,
      parts,
      [&](int row, int i) {
        return load_shared_pair(x + row * SharedLayout::row_bytes(a.call.inputs) + 8 * i);
      },
      [] { sync_share(); });
  touch_addition(a.call.addition, a.tiling.block_outputs(), thread, kShareThreads, output);
  if (stages_h(a)) {
    stage_polled(a.call.addition, a.call.rows, slot_T, thread, kShareThreads, staged);
    arrive_with_staged();
    sync_share();  // all have what they waited for
    if (thread < 32) forget_polled(a.call.addition, a.call.rows);
    return;
  }
  if (thread >= 32) return;
  if (a.call.addition.is_polled) {
    sync_with_h();  // consumers have it
    return forget_polled(a.call.addition, a.call.rows);
  }
  if (thread == 0) wait_for_shares(a.call.addition, makers);
  __syncwarp();
  sync_with_h();
  if (thread == 0) forget_shares(a.call.addition);
}

/// How the consumer warps share a stage: kSlices of its inputs, kGroups of its outputs.
template <int kSlabs>
struct WarpTiling {
  static constexpr int kSlabSteps = kSlabInputs / kStepInputs;
  static constexpr int kSlices = kSlabs == 1 ? kSlabSteps : kWarps, kGroups = kWarps / kSlices;
  static constexpr int kSteps = kSlabs * kSlabSteps / kSlices;  // of a warp
  static constexpr int kSets = kSteps == 1 ? 1 : 2;  // of accumulators: independent mma chains
};

/// Main loop of a consumer warp: its accumulators, in kSets that the epilogue adds up.
template <int kSlabs, int kTiles>
__device__ void multiply_stages(const Arguments& a, const Pipeline& pipeline, uint32_t x,
                                float (&sum)[WarpTiling<kSlabs>::kSets][kTiles][4]) {
  using Warps = WarpTiling<kSlabs>;
  constexpr int kSteps = Warps::kSteps, kSets = Warps::kSets;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int slice = warp % Warps::kSlices, group = warp / Warps::kSlices;
  const int outputs = a.tiling.block_outputs();
  const int x_row = min(lane % 8, a.call.rows - 1);
  const int first_step = slice * kSteps;
  // Lanes beyond the matrices that are loaded repeat them.
  const int matrix = lane / 8 % (2 * kSets);
  uint32_t x_line =
      x + x_row * SharedLayout::row_bytes(a.call.inputs) + 32 * first_step + 16 * matrix;
  const uint32_t weights = pipeline.memory + 128 * (first_step / Warps::kSlabSteps * outputs +
                                                    kTileOutputs * group + lane % kTileOutputs);
  PipelineState state;
  for (int k_tile = 0; k_tile < a.tiling.k_tiles; ++k_tile) {
    uint32_t b[kSteps / kSets][2 * kSets];
#pragma unroll
    for (int i = 0; i < kSteps / kSets; ++i) load_matrices(b[i], x_line + 64 * i);
    x_line += 128 * kSlabs;
    wait(pipeline.full + 8 * state.stage, state.phase);
    const uint32_t line = weights + state.stage * a.layout.stage_stride;
#pragma unroll
    for (int i = 0; i < kSteps / kSets; ++i) {
      uint32_t w[kSets][kTiles][4];
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int step = kSets * i + set;  // only a warp with whole slabs goes on to the next one
        const uint32_t slab = line + 128 * (step / Warps::kSlabSteps) * outputs;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          load_matrices(w[set][t],
                        piece_of(slab + 128 * kTileOutputs * Warps::kGroups * t,
                                 (first_step + step) % Warps::kSlabSteps * 2 + lane / 16));
      }
#pragma unroll
      for (int set = 0; set < kSets; ++set)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          multiply<__nv_bfloat16>(sum[set][t], w[set][t][0], w[set][t][1], w[set][t][2],
                                  w[set][t][3], b[i][2 * set], b[i][2 * set + 1]);
    }
    __syncwarp();
    if (lane == 0) arrive(pipeline.empty + 8 * state.stage);
    state.advance(1, pipeline.stages);
  }
}

/// A lane's outputs in the fragments of its warp.
template <int kSlabs>
struct OutputOfLane {
  const Arguments& a;

  __device__ int operator()(int tile, int half) const {
    using Warps = WarpTiling<kSlabs>;
    const int group = threadIdx.x / 32 / Warps::kSlices;
    return output_of(
        a.tiling, units_of(a),
        kTileOutputs * (Warps::kGroups * tile + group) + threadIdx.x % 32 / 4 + 8 * half);
  }
};

/// Adds what the adapters do: each slice some of their ranks. With a norm h too is what is yet to be divided by the
/// root mean square.
template <int kSlabs, int kTiles>
__device__ void add_adapters(const Arguments& a, const int* slot_T, const float* staged,
                             const HeldStep<kTiles>& held,
                             float (&sum)[WarpTiling<kSlabs>::kSets][kTiles][4]) {
  using Warps = WarpTiling<kSlabs>;
  add_low_rank<kTiles, 1, true>(a.call.addition, a.call.rows, slot_T, staged,
                                a.call.addition.h_pitch, threadIdx.x / 32 % Warps::kSlices,
                                Warps::kSlices, held, OutputOfLane<kSlabs>{a}, &sum[0][0][0]);
}

/// Epilogue: adds up the warps' accumulators through shared memory (`sums`), divides by the root
/// mean square, adds the bias and stores, with SwiGLU for pairs.
template <int kSlabs, int kTiles>
__device__ void write_outputs(const Arguments& a, float* sums,
                              const float (&sum)[WarpTiling<kSlabs>::kSets][kTiles][4],
                              const float (&squares_of_warps)[kMostRows][kWarps]) {
  using Warps = WarpTiling<kSlabs>;
  constexpr int kPitch = kTileOutputs * kTiles * Warps::kGroups;
  const Tiling& tiling = a.tiling;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int slice = warp % Warps::kSlices, group = warp / Warps::kSlices;
  const int quarter = lane % 4;
  if (quarter == 0) {  // lanes that hold the first two rows
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = kTileOutputs * (Warps::kGroups * t + group) + lane / 4 + 8 * half;
        float2 two = make_float2(sum[0][t][2 * half], sum[0][t][2 * half + 1]);
        if constexpr (Warps::kSets == 2)
          two.x += sum[1][t][2 * half], two.y += sum[1][t][2 * half + 1];
        *reinterpret_cast<float2*>(sums + (slice * kPitch + output) * kMostRows) = two;
      }
    }
  }
  sync_consumers(kThreads);
  const int units = units_of(a);
  const int first = blockIdx.x * tiling.box, count = min(tiling.box, units - first);
  const auto* bias_O = static_cast<const __nv_bfloat16*>(a.call.bias_O);
  const auto read = [&](int row, int from, int bias, float scale) {
    float total = 0;
#pragma unroll
    for (int p = 0; p < Warps::kSlices; ++p) total += sums[(p * kPitch + from) * kMostRows + row];
    return total * scale + (bias_O == nullptr ? 0.0F : to_float(bias_O[bias]));
  };
  const auto scale_of = [&](int row) {
    if (a.norm.weight_I == nullptr) return 1.0F;
    float squares = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) squares += squares_of_warps[row][w];
    return rsqrtf(squares / static_cast<float>(a.call.inputs) + a.norm.eps);
  };
  for (int n = threadIdx.x; n < a.call.rows * count; n += kThreads) {
    const int row = n / count, output = n - row * count;
    const float scale = scale_of(row);
    float x = read(row, output, first + output, scale);
    const int64_t offset = static_cast<int64_t>(row) * units + first + output;
    if (a.call.float_result) {
      static_cast<float*>(a.call.y)[offset] = x;
      continue;
    }
    if (tiling.is_pairs)
      x = gated<__nv_bfloat16>(x, read(row, tiling.box + output, units + first + output, scale));
    static_cast<__nv_bfloat16*>(a.call.y)[offset] = from_float<__nv_bfloat16>(x);
  }
}

#endif

/// Threads of a thread block. Only a kernel for adapters has those that make h.
template <bool kHasAdapters>
inline constexpr int kBlockThreads = kThreads + 32 + (kHasAdapters ? kShareThreads : 0);

/// kSlabs: Tiling::slabs. kTiles: Tiling::tiles(). Products without adapters have a kernel of their own: what adds them
/// costs half a microsecond where it is only passed by.
template <int kSlabs, int kTiles, bool kHasAdapters>
__global__ void __launch_bounds__(kBlockThreads<kHasAdapters>)
    narrow_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ float squares_of_warps[kMostRows][kWarps];
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), a.layout.stages};
  launch_dependents();
  if (threadIdx.x == kThreads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const uint32_t x = pipeline.memory + a.layout.x_begin;
  if (threadIdx.x == kThreads) load_weights(a, pipeline);
  const auto load_rows_of_x = [&] {
    if (a.norm.weight_I == nullptr) {
      load_x(a, x);
    } else {
      load_normed_x(a, x, pipeline.memory + a.layout.norm_begin, squares_of_warps);
    }
  };
  float sum[WarpTiling<kSlabs>::kSets][kTiles][4] = {};
  if constexpr (kHasAdapters) {
    __shared__ int slot_T[kMostRows];
    __shared__ float parts[kShareWarps];  // of a number of h
    __shared__ float staged[kStagedNumbers];
    const LowRankAddition& addition = a.call.addition;
    const bool makes_share = addition.made != nullptr;
    if (threadIdx.x >= kThreads) {
      if (threadIdx.x >= kThreads + 32) make_share_of_x(a, x, slot_T, parts, staged);
      return;
    }
    load_rows_of_x();
    find_slots(addition, kThreads, slot_T);
    sync_consumers(kThreads);
    if (makes_share) arrive_with_x();
    multiply_stages<kSlabs, kTiles>(a, pipeline, x, sum);
    HeldStep<kTiles> held;
    // Of more tiles the registers would be the kernel's most.
    if (kTiles <= 4 && makes_share && addition.by_row.tiles == 0)
      held.load(addition, threadIdx.x / 32 % WarpTiling<kSlabs>::kSlices,
                WarpTiling<kSlabs>::kSlices, OutputOfLane<kSlabs>{a});
    const bool is_staged = makes_share && stages_h(a);
    const bool polls = makes_share && addition.is_polled && !is_staged;
    if (is_staged) wait_for_staged();
    if (makes_share && !polls && !is_staged) sync_with_h();
    add_adapters<kSlabs, kTiles>(a, slot_T, is_staged ? staged : nullptr, held, sum);
    if (polls) sync_with_h();
  } else {
    if (threadIdx.x >= kThreads) return;
    load_rows_of_x();
    sync_consumers(kThreads);
    multiply_stages<kSlabs, kTiles>(a, pipeline, x, sum);
  }
  write_outputs<kSlabs, kTiles>(a, reinterpret_cast<float*>(memory + a.layout.sums_begin), sum,
                                squares_of_warps);
#endif
}

}  // namespace slime::kernels::cuda::narrow
