/// A thread block computes up to 192 outputs over all inputs, or 64 over one K split. One producer thread copies codes of weights;
/// four warpgroups first make the codes of x, each thread block for itself, and then take turns with the
/// slabs; the epilogue adds up what they have. Outputs are M of the wgmma instruction, rows of x are N,
/// eight, of which one or two are real.

#include "kernels/cuda/fp8/copies.cuh"
#include "kernels/cuda/fp8/e4m3.cuh"
#include "kernels/cuda/fp8/narrow_tiling.h"
#include "kernels/cuda/fp8/products.h"
#include "kernels/cuda/fp8/tile_maps.h"
#include "kernels/cuda/fp8/wgmma_e4m3.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {
namespace {

using narrow::kGroups;
using narrow::kMostRows;
using narrow::Layout;

constexpr int kThreads = 128 * kGroups, kWarps = kThreads / 32;
constexpr int kLoadsInFlight = 2, kPartials = 4;  // of x, a thread

struct Arguments {
  CUtensorMap weights;
  Product call;
  const void* x_TI = nullptr;
  Norm norm;
  narrow::Tiling tiling;
  Layout layout;
};

struct Barriers {
  uint64_t full[narrow::kMostStages], empty[narrow::kMostStages];
};

/// Factors of x, and the sums of squares of its rows.
struct OfX {
  float factors[kMostRows][narrow::kMostInputs / kSlabInputs];
  float squares[kMostRows][kWarps];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ void load_weights(const Arguments& a, const Pipeline& pipeline, int begin, int end) {
  const int first = blockIdx.x * a.tiling.box, per_stage = a.tiling.per_stage;
  PipelineState state, oldest;  // oldest: of the stages that may still be in flight
  for (int n = 0; begin + n * per_stage < end; ++n) {
    if (n >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    if (n >= a.layout.stages_in_flight) {
      wait(pipeline.full + 8 * oldest.stage, oldest.phase);
      oldest.advance(1, pipeline.stages);
    }
    const uint32_t barrier = pipeline.full + 8 * state.stage;
    const uint32_t to = pipeline.memory + state.stage * a.layout.stage_stride;
    arrive_expect_tx(barrier, a.layout.stage_stride);
    for (int i = 0; i < per_stage; ++i)
      copy_codes_once(to + i * a.tiling.slab_bytes(), a.weights,
                      kSlabInputs * (begin + n * per_stage + i), first, barrier);
    state.advance(1, pipeline.stages);
  }
}

__device__ inline float4 unpack_four(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ inline uint2 pack_four(const float4& x) {
  return make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
}

/// A warp makes the codes of a slab; lane l has its numbers 4 l to 4 l + 3.
__device__ inline void write_slab(uint32_t x, OfX& of_x, int row, int slab, const float4& four) {
  const int lane = threadIdx.x % 32;
  const float factor = factor_of(warp_max(largest(four)));
  if (lane == 0) of_x.factors[row][slab] = factor;
  const uint32_t to = x + 1024 * slab + 128 * row + ((lane / 4 ^ row) << 4) + 4 * (lane % 4);
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(codes_of(four, factor)) : "memory");
}

/// Prologue: x, or (residual + added) * weight, of these slabs as codes. The division by the root mean square,
/// which the factors need not know, is left to the epilogue.
__device__ void make_codes(const Arguments& a, uint32_t x, OfX& of_x, int begin, int end) {
  const int fours = a.call.inputs / 4, thread = threadIdx.x, first = 32 * begin + thread,
            last = 32 * end;
  const bool has_norm = a.norm.weight_I != nullptr, is_first = blockIdx.x + blockIdx.y == 0;
  const auto* from = static_cast<const uint2*>(has_norm ? a.norm.residual_TI : a.x_TI);
  const auto* added = reinterpret_cast<const float4*>(a.norm.added_STI);
  const auto* weight = static_cast<const uint2*>(a.norm.weight_I);
  const int splits = added == nullptr ? 0 : a.norm.splits;
  const int64_t stride = static_cast<int64_t>(a.call.rows) * fours;
  uint2 by[kLoadsInFlight];
#pragma unroll
  for (int h = 0; h < kLoadsInFlight; ++h)
    if (has_norm && first + h * kThreads < last) by[h] = __ldg(weight + first + h * kThreads);
  grid_dependency_wait();
  for (int row = 0; row < a.call.rows; ++row) {
    float squares = 0;
    for (int at = first; at < last; at += kLoadsInFlight * kThreads) {
      // All loads come first: each round of them is the latency of the second level cache.
      uint2 held[kLoadsInFlight];
      float4 part[kLoadsInFlight][kPartials];
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = at + h * kThreads;
        if (i < last) held[h] = __ldcg(from + row * fours + i);
        if (i < last && has_norm && last - first > kLoadsInFlight * kThreads)
          by[h] = __ldg(weight + i);
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          part[h][p] = make_float4(0, 0, 0, 0);
          if (i < last && p < splits) part[h][p] = __ldcg(added + p * stride + row * fours + i);
        }
      }
      float4 more[kLoadsInFlight];
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        more[h] = part[h][0];
#pragma unroll
        for (int p = 1; p < kPartials; ++p) add_to(more[h], part[h][p]);
        const int i = at + h * kThreads;
        if (i < last && splits > kPartials)
          add_partials<4>(more[h], added + kPartials * stride + row * fours + i, stride,
                          splits - kPartials);
      }
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = at + h * kThreads;
        if (i >= last) continue;  // all of a warp: slabs are whole
        float4 four = unpack_four(held[h]);
        if (has_norm) {
          add_to(more[h], four);
          const uint2 sum = pack_four(more[h]);
          const float4 s = unpack_four(sum), w = unpack_four(by[h]);
          if (is_first) static_cast<uint2*>(a.norm.sum_TI)[row * fours + i] = sum;
          squares += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
          four = make_float4(s.x * w.x, s.y * w.y, s.z * w.z, s.w * w.w);
        }
        write_slab(x, of_x, row, i / 32 - begin, four);
      }
    }
    squares = warp_sum(squares);
    if (thread % 32 == 0) of_x.squares[row][thread / 32] = squares;
  }
}

template <int kTiles>
__device__ void multiply_slabs(const Arguments& a, const Pipeline& pipeline, uint32_t x,
                               const OfX& of_x, int begin, int end, float (&sum)[kTiles][4]) {
  const narrow::Tiling& tiling = a.tiling;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = threadIdx.x / 128;
  const float* factors[kTiles][2];
  const int first = blockIdx.x * tiling.box,
            units = tiling.is_pairs ? a.call.outputs / 2 : a.call.outputs;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int local = kGroupOutputs * t + 16 * warp + lane / 4 + 8 * half;
      const bool is_up = tiling.is_pairs && local >= tiling.box;
      const int unit = min(first + (is_up ? local - tiling.box : local), units - 1);
      factors[t][half] =
          a.call.weight.factors_BC +
          __ldg(a.call.weight.factor_row_O + unit + (is_up ? units : 0)) * tiling.slabs;
    }
  }
  float dot[kTiles][4] = {};
  for (int i = group; begin + i < end; i += kGroups) {
    const int slab = begin + i, n = i / tiling.per_stage, place = i - n * tiling.per_stage;
    const int stage = n % pipeline.stages, phase = n / pipeline.stages & 1;
    float of_w[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      of_w[t][0] = __ldg(factors[t][0] + slab), of_w[t][1] = __ldg(factors[t][1] + slab);
    wait(pipeline.full + 8 * stage, phase);
    const uint32_t weights =
        pipeline.memory + stage * a.layout.stage_stride + place * tiling.slab_bytes();
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      wgmma_block(dot[t], weights + 128 * kGroupOutputs * t, x + 1024 * i);
    wgmma_commit_group();
    const float x0 = of_x.factors[0][i], x1 = of_x.factors[1][i];
    wgmma_wait_group<0>();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) settle(dot[t]);
    if (threadIdx.x % 128 == 0 && place + kGroups >= tiling.per_stage)
      arrive(pipeline.empty + 8 * stage);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      sum[t][0] += dot[t][0] * (of_w[t][0] * x0);
      sum[t][1] += dot[t][1] * (of_w[t][0] * x1);
      sum[t][2] += dot[t][2] * (of_w[t][1] * x0);
      sum[t][3] += dot[t][3] * (of_w[t][1] * x1);
    }
  }
}

template <int kTiles>
__device__ void write_outputs(const Arguments& a, float* sums, const float (&sum)[kTiles][4],
                              const OfX& of_x) {
  constexpr int kPitch = kGroupOutputs * kTiles;
  const narrow::Tiling& tiling = a.tiling;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = threadIdx.x / 128;
  if (lane % 4 == 0) {  // lanes that hold the two rows
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = kGroupOutputs * t + 16 * warp + lane / 4 + 8 * half;
        *reinterpret_cast<float2*>(sums + (group * kPitch + output) * kMostRows) =
            make_float2(sum[t][2 * half], sum[t][2 * half + 1]);
      }
    }
  }
  sync_consumers(kThreads);
  const int units = tiling.is_pairs ? a.call.outputs / 2 : a.call.outputs;
  const int first = blockIdx.x * tiling.box, count = min(tiling.box, units - first);
  const auto* bias_O = static_cast<const __nv_bfloat16*>(a.call.bias_O);
  for (int n = threadIdx.x; n < a.call.rows * count; n += kThreads) {
    const int row = n / count, output = n - row * count;
    float scale = 1;
    if (a.norm.weight_I != nullptr) {
      float squares = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) squares += of_x.squares[row][w];
      scale = rsqrtf(squares / static_cast<float>(a.call.inputs) + a.norm.eps);
    }
    const auto read = [&](int from, int bias) {
      float total = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) total += sums[(g * kPitch + from) * kMostRows + row];
      const bool has_bias = bias_O != nullptr && blockIdx.y == 0;
      return total * scale + (has_bias ? to_float(bias_O[bias]) : 0.0F);
    };
    float x = read(output, first + output);
    const int64_t offset =
        (static_cast<int64_t>(blockIdx.y) * a.call.rows + row) * units + first + output;
    if (a.call.float_result) {
      static_cast<float*>(a.call.y)[offset] = x;
      continue;
    }
    if (tiling.is_pairs) x = silu(x) * read(tiling.box + output, units + first + output);
    static_cast<__nv_bfloat16*>(a.call.y)[offset] = from_float<__nv_bfloat16>(x);
  }
}

#endif

template <int kTiles>
__global__ void __launch_bounds__(kThreads + 32, 1)
    narrow_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ OfX of_x;
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), a.layout.stages};
  const int begin = a.tiling.begin_of(blockIdx.y), end = a.tiling.begin_of(blockIdx.y + 1);
  launch_dependents();
  if (threadIdx.x == kThreads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, min(a.tiling.per_stage, kGroups));
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) load_weights(a, pipeline, begin, end);
    return;
  }
  const uint32_t x = pipeline.memory + a.layout.x_begin;
  make_codes(a, x, of_x, begin, end);
  fence_async_shared();  // before wgmma reads them
  sync_consumers(kThreads);
  float sum[kTiles][4] = {};
  multiply_slabs<kTiles>(a, pipeline, x, of_x, begin, end, sum);
  write_outputs<kTiles>(a, reinterpret_cast<float*>(memory + a.layout.sums_begin), sum, of_x);
#endif
}

template <int kTiles>
void run(const Arguments& a, cudaStream_t stream) {
  constexpr auto kKernel = narrow_product_kernel<kTiles>;
  allow_shared_memory<kKernel>(narrow::kSharedBytes);
  launch(kKernel, dim3(a.tiling.blocks, a.tiling.splits), dim3(kThreads + 32), a.layout.bytes,
         stream, a);
}

}  // namespace

bool has_narrow_product(int64_t rows, int64_t inputs) {
  return rows <= kMostRows && inputs % kSlabInputs == 0 && inputs <= narrow::kMostInputs &&
         has_products();
}

void narrow_product(const Product& call, const void* x_TI, const Norm& norm, cudaStream_t stream) {
  const bool is_normed = norm.weight_I != nullptr;
  if (!has_narrow_product(call.rows, call.inputs) ||
      (is_normed && call.epilogue == Product::Epilogue::kSplitK))
    throw std::runtime_error("no product of " + std::to_string(call.rows) + " rows of " +
                             std::to_string(call.inputs) + " inputs, codes made within");
  const bool is_pairs = call.epilogue == Product::Epilogue::kSwiglu;
  Arguments a;
  a.call = call;
  a.x_TI = x_TI;
  a.norm = norm;
  const bool is_split = call.epilogue == Product::Epilogue::kSplitK;
  a.call.float_result |= is_split;
  a.tiling = is_split ? narrow::split_tiling(call.inputs, call.outputs, num_processors())
                      : narrow::whole_tiling(call.inputs, call.outputs, is_pairs, num_processors());
  a.layout = Layout(a.tiling);
  const int groups = is_pairs ? 2 : 1;
  a.weights =
      code_map(call.weight.codes_OI, groups, call.outputs / groups, call.inputs, a.tiling.box);
  switch (a.tiling.tiles()) {
    case 1:
      return run<1>(a, stream);
    case 2:
      return run<2>(a, stream);
    default:
      return run<3>(a, stream);
  }
}

}  // namespace slime::kernels::cuda::fp8
