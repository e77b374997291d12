/// A thread block computes up to 192 outputs (weight rows) over one K split. One producer thread copies
/// codes of weights and another those of x with their factors, slab by slab; consumer warpgroups multiply
/// 64 outputs with all rows of x and take turns with the slabs. Where a warpgroup has fewer than 64
/// outputs it multiplies whatever bytes lie behind them; those sums are not stored.

#include <type_traits>

#include "kernels/cuda/fp8/copies.cuh"
#include "kernels/cuda/fp8/few_tiling.h"
#include "kernels/cuda/fp8/products.h"
#include "kernels/cuda/fp8/tile_maps.h"
#include "kernels/cuda/fp8/wgmma_e4m3.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {
namespace {

constexpr int kProducerThreads = 64;

struct Arguments {
  CUtensorMap weights, x;
  Product call;
  Tiling tiling;
  FewLayout layout;
  int units = 0, pitch = 0;  // outputs or pairs; of x's factors
};

struct Barriers {
  uint64_t full[kMostStages], x_full[kMostStages], empty[kMostStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ void load_weights(const Arguments& a, const Pipeline& pipeline, int begin, int end) {
  const int first = blockIdx.x * a.tiling.box;
  PipelineState state, oldest;  // oldest: of the stages that may still be in flight
  for (int slab = begin; slab < end; ++slab) {
    if (slab - begin >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    if (slab - begin >= a.layout.stages_in_flight) {
      wait(pipeline.full + 8 * oldest.stage, oldest.phase);
      oldest.advance(1, pipeline.stages);
    }
    const uint32_t barrier = pipeline.full + 8 * state.stage;
    const uint32_t to = pipeline.memory + state.stage * a.layout.stage_stride;
    arrive_expect_tx(barrier, 128 * a.tiling.block_outputs());
    copy_codes_once(to, a.weights, kSlabInputs * slab, first, barrier);
    state.advance(1, pipeline.stages);
  }
}

template <int kRows>
__device__ void load_x(const Arguments& a, const Pipeline& pipeline, uint32_t x_full,
                       uint32_t factors, int begin, int end) {
  prefetch_map(a.x);
  grid_dependency_wait();
  fence_async_global();
  const uint32_t factor_bytes = 4 * a.pitch;
  PipelineState state;
  for (int slab = begin; slab < end; ++slab) {
    if (slab - begin >= pipeline.stages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
    const uint32_t barrier = x_full + 8 * state.stage;
    arrive_expect_tx(barrier, 128 * a.layout.x_rows + factor_bytes);
    copy_codes(pipeline.memory + state.stage * a.layout.stage_stride + a.layout.x_begin, a.x,
               kSlabInputs * slab, 0, barrier);
    copy_bytes(factors + 4 * kRows * state.stage, a.call.x.factors_CP + slab * a.pitch,
               factor_bytes, barrier);
    state.advance(1, pipeline.stages);
  }
}

/// Factors of an output of the thread block, a row of them.
__device__ const float* factors_of(const Arguments& a, int local, int columns) {
  const int box = a.tiling.box, first = blockIdx.x * box;
  const int unit = first + (a.tiling.is_pairs && local >= box ? local - box : local);
  const int output = (a.tiling.is_pairs && local >= box ? a.units : 0) + min(unit, a.units - 1);
  return a.call.weight.factors_BC + a.call.weight.factor_row_O[output] * columns;
}

template <int kRows>
__device__ void multiply_slabs(const Arguments& a, const Pipeline& pipeline, uint32_t x_full,
                               const float (*factors)[kRows], int begin, int end, int tile,
                               int slice, float (&sum)[kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = kGroupOutputs * tile + 16 * warp + lane / 4;
  const float* low = factors_of(a, local, a.tiling.slabs);
  const float* high = factors_of(a, local + 8, a.tiling.slabs);
  const int slices = a.tiling.slices();
  constexpr int kAtOnce = kRows < 64 ? kRows : 64;  // of more rows the sums take the registers
  float dot[kAtOnce / 2] =
      {};  // once: what a product overwrites is no reason to clear it each time
  PipelineState state;
  state.advance(slice, pipeline.stages);
  for (int slab = begin + slice; slab < end; slab += slices) {
    const float low_factor = __ldg(low + slab), high_factor = __ldg(high + slab);
    wait(pipeline.full + 8 * state.stage, state.phase);
    wait(x_full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * a.layout.stage_stride;
#pragma unroll
    for (int first = 0; first < kRows; first += kAtOnce) {
      wgmma_fence();
      wgmma_block(dot, stage + 128 * kGroupOutputs * tile, stage + a.layout.x_begin + 128 * first);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      settle(dot);
#pragma unroll
      for (int j = 0; j < kAtOnce / 8; ++j) {
        const float2 of_x =
            *reinterpret_cast<const float2*>(&factors[state.stage][first + 8 * j + 2 * (lane % 4)]);
        float* const to = sum + first / 2 + 4 * j;
        to[0] += dot[4 * j] * (low_factor * of_x.x);
        to[1] += dot[4 * j + 1] * (low_factor * of_x.y);
        to[2] += dot[4 * j + 2] * (high_factor * of_x.x);
        to[3] += dot[4 * j + 3] * (high_factor * of_x.y);
      }
    }
    __syncwarp();  // all lanes have read the factors
    if (lane == 0) arrive(pipeline.empty + 8 * state.stage);
    state.advance(slices, pipeline.stages);
  }
}

__device__ inline float4 with_bias(float4 x, const __nv_bfloat16* bias) {
  const uint2 four = *reinterpret_cast<const uint2*>(bias);
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(x.x + low.x, x.y + low.y, x.z + high.x, x.w + high.y);
}

template <int kRows>
__device__ void write_outputs(const Arguments& a, float* sums, int tile, int slice, int threads,
                              const float (&sum)[kRows / 2]) {
  const int box = a.tiling.box, outputs = a.tiling.block_outputs(),
            pitch = FewLayout::pitch(a.tiling), slices = a.tiling.slices();
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  sync_consumers(threads);  // no warp still reads the stages that `sums` overlays
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = kGroupOutputs * tile + 16 * warp + lane / 4 + 8 * half;
    if (output >= outputs) continue;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums[(slice * kRows + 8 * j + 2 * (lane % 4) + i) * pitch + output] =
            sum[4 * j + 2 * half + i];
    }
  }
  sync_consumers(threads);
  const Product& call = a.call;
  const int first = blockIdx.x * box, pieces = min(box, a.units - first) / 4;
  const auto* bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  for (int n = threadIdx.x; n < call.rows * pieces; n += threads) {
    const int row = n / pieces, output = n % pieces * 4;
    const auto read = [&](int from, int bias) {
      float4 x = make_float4(0, 0, 0, 0);
      for (int s = 0; s < slices; ++s) {
        const float4 part =
            *reinterpret_cast<const float4*>(sums + (s * kRows + row) * pitch + from);
        x.x += part.x, x.y += part.y, x.z += part.z, x.w += part.w;
      }
      return bias_O == nullptr ? x : with_bias(x, bias_O + bias);
    };
    float4 x = read(output, first + output);
    int64_t offset = static_cast<int64_t>(row) * a.units + first + output;
    if (call.epilogue == Product::Epilogue::kSplitK || call.float_result) {
      if (call.epilogue == Product::Epilogue::kSplitK)
        offset += static_cast<int64_t>(blockIdx.y) * call.rows * a.units;
      *reinterpret_cast<float4*>(static_cast<float*>(call.y) + offset) = x;
      continue;
    }
    if (a.tiling.is_pairs) {
      const float4 up = read(box + output, a.units + first + output);
      x = make_float4(silu(x.x) * up.x, silu(x.y) * up.y, silu(x.z) * up.z, silu(x.w) * up.w);
    }
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(call.y) + offset) =
        make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
  }
}

#endif

template <int kRows>
__global__ void __launch_bounds__(128 * most_groups(kRows) + kProducerThreads, 1)
    few_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  __shared__ __align__(16) float factors[kMostStages][kRows];
  const int threads = static_cast<int>(blockDim.x) - kProducerThreads, group = threadIdx.x / 128;
  const int tile = group % a.tiling.group_tiles(), slice = group / a.tiling.group_tiles();
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), a.layout.stages};
  const uint32_t x_full = shared_address(barriers.x_full);
  const int begin = a.tiling.begin_of(blockIdx.y), end = a.tiling.begin_of(blockIdx.y + 1);
  launch_dependents();
  if (threadIdx.x == threads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(x_full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, 4 * a.tiling.group_tiles());  // of each warp
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= threads) {
    if (threadIdx.x == threads) load_weights(a, pipeline, begin, end);
    if (threadIdx.x == threads + 32)
      load_x<kRows>(a, pipeline, x_full, shared_address(factors), begin, end);
    return;
  }
  float sum[kRows / 2] = {};
  multiply_slabs<kRows>(a, pipeline, x_full, factors, begin, end, tile, slice, sum);
  grid_dependency_wait();  // the preceding kernels read what is written now
  write_outputs<kRows>(a, reinterpret_cast<float*>(memory), tile, slice, threads, sum);
#endif
}

Tiling tiling_of(int inputs, int outputs, Product::Epilogue epilogue) {
  return epilogue == Product::Epilogue::kSplitK
             ? split_tiling(inputs, outputs, num_processors())
             : whole_tiling(inputs, outputs, epilogue == Product::Epilogue::kSwiglu,
                            num_processors());
}

template <int kRows>
void run(const Product& call, cudaStream_t stream) {
  constexpr auto kKernel = few_product_kernel<kRows>;
  Arguments a;
  a.call = call;
  a.tiling = tiling_of(call.inputs, call.outputs, call.epilogue);
  a.tiling.most_groups = most_groups(kRows);
  a.layout = FewLayout(a.tiling, kRows, call.rows, num_processors());
  const int groups = a.tiling.is_pairs ? 2 : 1;
  a.units = call.outputs / groups;
  a.weights = code_map(call.weight.codes_OI, groups, a.units, call.inputs, a.tiling.box);
  a.x = code_map(call.x.codes_TI, 1, call.rows, call.inputs, a.layout.x_rows);
  a.pitch = static_cast<int>(factor_pitch(call.rows));
  allow_shared_memory<kKernel>(kPipelineBytes);
  launch(kKernel, dim3(a.tiling.tiles, a.tiling.splits),
         dim3(128 * a.tiling.groups() + kProducerThreads), a.layout.bytes, stream, a);
}

}  // namespace

bool has_products() { return compute_capability_major() == 9; }

int few_product_splits(int inputs, int outputs) {
  return tiling_of(inputs, outputs, Product::Epilogue::kSplitK).splits;
}

void few_product(const Product& call, cudaStream_t stream) {
  if (call.rows < 1 || call.rows > kMostFewRows || call.inputs % 16 != 0 || call.outputs % 8 != 0)
    throw std::runtime_error("no product of " + std::to_string(call.rows) + " rows of codes with " +
                             std::to_string(call.outputs) + " by " + std::to_string(call.inputs));
  if (call.rows <= 8) return run<8>(call, stream);
  if (call.rows <= 16) return run<16>(call, stream);
  if (call.rows <= 32) return run<32>(call, stream);
  call.rows <= 64 ? run<64>(call, stream) : run<128>(call, stream);
}

}  // namespace slime::kernels::cuda::fp8
