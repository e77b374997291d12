#pragma once

/// The kernel of kernels/cuda/products/narrow_product.h.
///
/// A block has up to 192 outputs (weight rows) and all inputs. One thread asks for weights, stage
/// by stage, through a ring in shared memory; of each stage a warp multiplies 16 inputs or some
/// more with all outputs, or every other 16 of them, and at the end the warps' sums are added up.
/// Outputs are the operand with 16 rows; x has eight, of which the last is repeated.

#include <cuda.h>

#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/cuda/products/narrow_product_cut.h"
#include "kernels/cuda/products/ring.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::narrow {

inline constexpr int kThreads = 32 * kWarps;  // and a warp that asks for weights

struct Arguments {
  CUtensorMap weights;
  BatchProduct call;
  NormedInput norm;
  Cut cut;
  SharedLayout layout;
};

struct Barriers {
  uint64_t full[kMaxStages], empty[kMaxStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By one thread.
__device__ inline void ask_for_weights(const Arguments& a, const Ring& ring) {
  const int first = blockIdx.x * a.cut.box;
  Place place, oldest;  // oldest: of what may be on its way
  for (int chunk = 0; chunk < a.cut.chunks; ++chunk) {
    if (chunk >= ring.stages) wait(ring.empty + 8 * place.slot, place.round ^ 1);
    if (chunk >= a.layout.at_once) {
      wait(ring.full + 8 * oldest.slot, oldest.round);
      oldest.advance(1, ring.stages);
    }
    const uint32_t barrier = ring.full + 8 * place.slot;
    arrive_expecting(barrier, SharedLayout::stage_bytes(a.cut));
    copy_group_once(ring.memory + place.slot * a.layout.slot_bytes, a.weights, first,
                    chunk * a.cut.slabs, barrier);
    place.advance(1, ring.stages);
  }
}

/// Where a piece of 16 bytes of a line of 128 lies, as the copy engine puts it.
__device__ inline uint32_t piece_of(uint32_t line, int piece) {
  return line + ((piece ^ (line >> 7 & 7)) << 4);
}

__device__ inline void store_shared(uint32_t address, uint2 x) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x.x), "r"(x.y) : "memory");
}
__device__ inline void store_shared(uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}
__device__ inline uint2 load_shared(uint32_t address) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address) : "memory");
  return x;
}

__device__ inline float4 unpack_four(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ inline uint2 pack_four(const float4& x) {
  return make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
}

inline constexpr int kAtOnce = 4;  // loads of x that a thread has on their way

/// Brings x as it is into shared memory.
__device__ inline void bring_x(const Arguments& a, uint32_t x) {
  const int pieces = a.call.inputs / 8, row_bytes = SharedLayout::row_bytes(a.call.inputs);
  const auto* from = static_cast<const uint4*>(a.call.x_TI);
  wait_for_inputs();
  for (int row = 0; row < a.call.rows; ++row) {
    for (int begin = threadIdx.x; begin < pieces; begin += kAtOnce * kThreads) {
      uint4 held[kAtOnce];
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int i = begin + h * kThreads;
        if (i < pieces) held[h] = __ldcg(from + row * pieces + i);
      }
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int i = begin + h * kThreads;
        if (i < pieces) store_shared(x + row * row_bytes + 16 * i, held[h]);
      }
    }
  }
}

/// Adds up and norms, but for the root mean square, by which the product is divided at the end: the
/// warps' sums of squares. `weight`: room for the norm's weights.
__device__ inline void bring_normed_x(const Arguments& a, uint32_t x, uint32_t weight,
                                      float (&squares_of_warps)[kMostRows][kWarps]) {
  const int fours = a.call.inputs / 4, row_bytes = SharedLayout::row_bytes(a.call.inputs);
  const int thread = threadIdx.x;
  // Read again by the thread that writes it.
  for (int i = thread; i < fours; i += kThreads)
    store_shared(weight + 8 * i, static_cast<const uint2*>(a.norm.weight_I)[i]);
  const auto* residual = static_cast<const uint2*>(a.norm.residual_TI);
  const auto* added = reinterpret_cast<const float4*>(a.norm.added_TI);
  auto* sum = static_cast<uint2*>(a.norm.sum_TI);
  wait_for_inputs();
  for (int row = 0; row < a.call.rows; ++row) {
    float squares = 0;
    for (int begin = thread; begin < fours; begin += kAtOnce * kThreads) {
      uint2 held[kAtOnce];
      float4 more[kAtOnce];
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int i = begin + h * kThreads;
        if (i >= fours) continue;
        held[h] = __ldcg(residual + row * fours + i);
        more[h] = __ldcg(added + row * fours + i);
      }
#pragma unroll
      for (int h = 0; h < kAtOnce; ++h) {
        const int i = begin + h * kThreads;
        if (i >= fours) continue;
        const float4 old = unpack_four(held[h]), by = unpack_four(load_shared(weight + 8 * i));
        const uint2 rounded = pack_four(make_float4(old.x + more[h].x, old.y + more[h].y,
                                                    old.z + more[h].z, old.w + more[h].w));
        const float4 s = unpack_four(rounded);
        store_shared(x + row * row_bytes + 8 * i,
                     pack_four(make_float4(s.x * by.x, s.y * by.y, s.z * by.z, s.w * by.w)));
        squares += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
        if (blockIdx.x == 0) sum[row * fours + i] = rounded;
      }
    }
    squares = warp_sum(squares);
    if (thread % 32 == 0) squares_of_warps[row][thread / 32] = squares;
  }
}

/// Matrices of eight lines of 16 bytes.
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(line_of_lane)
               : "memory");
}
__device__ inline void load_matrices(uint32_t (&to)[2], uint32_t line_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(line_of_lane)
               : "memory");
}

/// How a block's warps share a stage: kParts of its inputs, kGroups of its outputs.
template <int kSlabs>
struct Shares {
  static constexpr int kSlabSteps = kSlabInputs / kStepInputs;
  static constexpr int kParts = kSlabs == 1 ? kSlabSteps : kWarps, kGroups = kWarps / kParts;
  static constexpr int kSteps = kSlabs * kSlabSteps / kParts;  // of a warp
  static constexpr int kSets = kSteps == 1 ? 1 : 2;  // of sums: steps that are independent
};

/// The warp's sums, in kSets that are added up later.
template <int kSlabs, int kTiles>
__device__ void multiply_stages(const Arguments& a, const Ring& ring, uint32_t x,
                                float (&sum)[Shares<kSlabs>::kSets][kTiles][4]) {
  using Share = Shares<kSlabs>;
  constexpr int kSteps = Share::kSteps, kSets = Share::kSets;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = warp % Share::kParts, group = warp / Share::kParts;
  const int outputs = a.cut.block_outputs();
  const int x_row = min(lane % 8, a.call.rows - 1);
  const int first_step = part * kSteps;
  // Lanes beyond the matrices that are loaded repeat them.
  const int matrix = lane / 8 % (2 * kSets);
  uint32_t x_line =
      x + x_row * SharedLayout::row_bytes(a.call.inputs) + 32 * first_step + 16 * matrix;
  const uint32_t weights = ring.memory + 128 * (first_step / Share::kSlabSteps * outputs +
                                                kTileOutputs * group + lane % kTileOutputs);
  Place place;
  for (int chunk = 0; chunk < a.cut.chunks; ++chunk) {
    uint32_t b[kSteps / kSets][2 * kSets];
#pragma unroll
    for (int i = 0; i < kSteps / kSets; ++i) load_matrices(b[i], x_line + 64 * i);
    x_line += 128 * kSlabs;
    wait(ring.full + 8 * place.slot, place.round);
    const uint32_t line = weights + place.slot * a.layout.slot_bytes;
#pragma unroll
    for (int i = 0; i < kSteps / kSets; ++i) {
      uint32_t w[kSets][kTiles][4];
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int step = kSets * i + set;  // only a warp with whole slabs goes on to the next one
        const uint32_t slab = line + 128 * (step / Share::kSlabSteps) * outputs;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          load_matrices(w[set][t],
                        piece_of(slab + 128 * kTileOutputs * Share::kGroups * t,
                                 (first_step + step) % Share::kSlabSteps * 2 + lane / 16));
      }
#pragma unroll
      for (int set = 0; set < kSets; ++set)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          multiply<__nv_bfloat16>(sum[set][t], w[set][t][0], w[set][t][1], w[set][t][2],
                                  w[set][t][3], b[i][2 * set], b[i][2 * set + 1]);
    }
    __syncwarp();
    if (lane == 0) arrive(ring.empty + 8 * place.slot);
    place.advance(1, ring.stages);
  }
}

/// Adds up the warps' sums and writes what becomes of them.
template <int kSlabs, int kTiles>
__device__ void write_outputs(const Arguments& a, float* sums,
                              const float (&sum)[Shares<kSlabs>::kSets][kTiles][4],
                              const float (&squares_of_warps)[kMostRows][kWarps]) {
  using Share = Shares<kSlabs>;
  constexpr int kPitch = kTileOutputs * kTiles * Share::kGroups;
  const Cut& cut = a.cut;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = warp % Share::kParts, group = warp / Share::kParts;
  const int quarter = lane % 4;
  if (quarter == 0) {  // who has the first two rows
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = kTileOutputs * (Share::kGroups * t + group) + lane / 4 + 8 * half;
        float2 two = make_float2(sum[0][t][2 * half], sum[0][t][2 * half + 1]);
        if constexpr (Share::kSets == 2)
          two.x += sum[1][t][2 * half], two.y += sum[1][t][2 * half + 1];
        *reinterpret_cast<float2*>(sums + (part * kPitch + output) * kMostRows) = two;
      }
    }
  }
  sync_groups(kThreads);
  const int units = cut.is_pairs ? a.call.outputs / 2 : a.call.outputs;
  const int first = blockIdx.x * cut.box, count = min(cut.box, units - first);
  const auto* bias_O = static_cast<const __nv_bfloat16*>(a.call.bias_O);
  const auto read = [&](int row, int from, int bias, float scale) {
    float total = 0;
#pragma unroll
    for (int p = 0; p < Share::kParts; ++p) total += sums[(p * kPitch + from) * kMostRows + row];
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
    const int64_t place = static_cast<int64_t>(row) * units + first + output;
    if (a.call.float_result) {
      static_cast<float*>(a.call.y)[place] = x;
      continue;
    }
    if (cut.is_pairs) x = silu(x) * read(row, cut.box + output, units + first + output, scale);
    static_cast<__nv_bfloat16*>(a.call.y)[place] = from_float<__nv_bfloat16>(x);
  }
}

#endif

/// kSlabs: Cut::slabs. kTiles: Cut::tiles().
template <int kSlabs, int kTiles>
__global__ void __launch_bounds__(kThreads + 32)
    narrow_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ float squares_of_warps[kMostRows][kWarps];
  const Ring ring{shared_address(memory), shared_address(barriers.full),
                  shared_address(barriers.empty), a.layout.stages};
  let_next_start();
  if (threadIdx.x == kThreads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(ring.full + 8 * i, 1);
      init_barrier(ring.empty + 8 * i, kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) ask_for_weights(a, ring);
    return;
  }
  const uint32_t x = ring.memory + a.layout.x_begin;
  if (a.norm.weight_I == nullptr) {
    bring_x(a, x);
  } else {
    bring_normed_x(a, x, ring.memory + a.layout.norm_begin, squares_of_warps);
  }
  sync_groups(kThreads);
  float sum[Shares<kSlabs>::kSets][kTiles][4] = {};
  multiply_stages<kSlabs, kTiles>(a, ring, x, sum);
  write_outputs<kSlabs, kTiles>(a, reinterpret_cast<float*>(memory + a.layout.sums_begin), sum,
                                squares_of_warps);
#endif
}

}  // namespace slime::kernels::cuda::narrow
