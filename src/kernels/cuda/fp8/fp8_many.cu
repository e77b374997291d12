/// Persistent thread blocks with tiles of 128 or 256 rows by 128 outputs. One producer thread copies codes of
/// weights, another those of x with their factors; two consumer warpgroups multiply 64 rows each at a time: 128 inputs into one set of sums, which
/// is added with the factors to the other. While one warpgroup adds, the other multiplies.
///
/// With 128 rows a slab of operands comes from L2 in as many clocks as the tensor cores need for it, with 256
/// rows in three quarters. Where there are too few tiles inputs are split.

#include <algorithm>

#include "kernels/cuda/fp8/copies.cuh"
#include "kernels/cuda/fp8/many_rows.cuh"
#include "kernels/cuda/fp8/products.h"
#include "kernels/cuda/fp8/tile_maps.h"
#include "kernels/cuda/fp8/wgmma_e4m3.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::fp8 {
namespace {

constexpr int kTile = 128, kSlab = 128;  // outputs, inputs
constexpr int kTileBytes = kTile * kSlab;
constexpr int kMostOfInputs = 8, kLeastSlabs = 4;  // of a split

/// kHalves: products of 64 rows that a warpgroup has in a tile.
template <int kHalves>
struct Shape {
  static constexpr int kRows = 128 * kHalves;
  static constexpr int kStages = kHalves == 1 ? 6 : 4;
  static constexpr int kXBytes = kRows * kSlab, kStageBytes = kXBytes + kTileBytes;
};
constexpr int kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kBandRows = 2048;  // that are computed together, output by output

struct Arguments {
  CUtensorMap weights, x;
  Product call;
  int slabs = 0, pitch = 0, x_rows = 0;
  int row_tiles = 0, tiles = 0, splits = 1;  // tiles of each split
};

template <int kHalves>
struct Barriers {
  uint64_t full[Shape<kHalves>::kStages], empty[Shape<kHalves>::kStages];
};

struct Place {
  int row, output;        // of the first
  int split, begin, end;  // slabs
};

/// Bands of row tiles, within a band column by column.
template <int kHalves>
__device__ inline Place place_of(const Arguments& a, int number) {
  constexpr int kRows = Shape<kHalves>::kRows, kBand = kBandRows / kRows;
  const int split = number / a.tiles, tile = number - split * a.tiles;
  const int columns = a.tiles / a.row_tiles, of_band = kBand * columns;
  const int band = tile / of_band, within = tile - band * of_band;
  const int rows = min(kBand, a.row_tiles - band * kBand);
  return {kRows * (band * kBand + within % rows), kTile * (within / rows), split,
          a.slabs * split / a.splits, a.slabs * (split + 1) / a.splits};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A producer's part of all stages of all tiles: `copy` (place, slab, stage, barrier).
template <int kHalves, typename Copy>
__device__ void fill_stages(const Arguments& a, const Pipeline& pipeline, const Copy& copy) {
  using S = Shape<kHalves>;
  PipelineState state;
  int filled = 0;
  for (int tile = blockIdx.x; tile < a.tiles * a.splits; tile += gridDim.x) {
    const Place place = place_of<kHalves>(a, tile);
    for (int slab = place.begin; slab < place.end; ++slab) {
      if (filled++ >= S::kStages) wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      copy(place, slab, state.stage, pipeline.full + 8 * state.stage);
      state.advance(1, S::kStages);
    }
  }
}

/// Weights do not depend on the preceding kernels: the first stages arrive while those end.
template <int kHalves>
__device__ void load_weights(const Arguments& a, const Pipeline& pipeline) {
  using S = Shape<kHalves>;
  prefetch_map(a.weights);
  fill_stages<kHalves>(a, pipeline, [&](const Place& place, int slab, int stage, uint32_t barrier) {
    arrive_expect_tx(barrier, kTileBytes);
    copy_codes(pipeline.memory + stage * S::kStageBytes + S::kXBytes, a.weights, kSlab * slab,
               place.output, barrier);
  });
}

template <int kHalves>
__device__ void load_x(const Arguments& a, const Pipeline& pipeline, uint32_t factors) {
  using S = Shape<kHalves>;
  prefetch_map(a.x);
  grid_dependency_wait();
  fence_async_global();
  fill_stages<kHalves>(a, pipeline, [&](const Place& place, int slab, int stage, uint32_t barrier) {
    const uint32_t factor_bytes = 4 * min(S::kRows, a.pitch - place.row);
    arrive_expect_tx(barrier, kSlab * a.x_rows + factor_bytes);
    copy_codes(pipeline.memory + stage * S::kStageBytes, a.x, kSlab * slab, place.row, barrier);
    copy_bytes(factors + 4 * S::kRows * stage,
               a.call.x.factors_CP + static_cast<int64_t>(slab) * a.pitch + place.row, factor_bytes,
               barrier);
  });
}

/// Where the 128 outputs of a tile have one row of factors; otherwise -1.
__device__ inline int64_t factor_row_of(const Arguments& a, int first) {
  const int64_t* rows = a.call.weight.factor_row_O;
  const int last = min(first + kTile, a.call.outputs) - 1;
  const int64_t row = __ldg(rows + first);
  return row == __ldg(rows + last) ? row : -1;
}

__device__ void store_tile(const Arguments& a, const Place& place, int row,
                           const float (&sum)[64]) {
  const int quarter = threadIdx.x % 4;
  const auto* bias_O = static_cast<const __nv_bfloat16*>(a.call.bias_O);
  const auto biased = [&](int j, int half) {
    float2 x = make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
    const int output = place.output + 8 * j + 2 * quarter;
    if (bias_O != nullptr && output < a.call.outputs) {
      const float2 bias =
          unpack<__nv_bfloat16>(*reinterpret_cast<const uint32_t*>(bias_O + output));
      x.x += bias.x, x.y += bias.y;
    }
    return x;
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool is_inside = row + 8 * half < a.call.rows;
    const int64_t line =
        (static_cast<int64_t>(place.split) * a.call.rows + row + 8 * half) * a.call.outputs;
    if (a.call.float_result) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const int output = place.output + 8 * j + 2 * quarter;
        if (is_inside && output < a.call.outputs)
          *reinterpret_cast<float2*>(static_cast<float*>(a.call.y) + line + output) =
              biased(j, half);
      }
      continue;
    }
#pragma unroll
    for (int j = 0; j < 16; j += 4) {
      const auto two = [&](int group) {
        const float2 x = biased(j + group, half);
        return pack<__nv_bfloat16>(x.x, x.y);
      };
      const uint4 eight = turned(two(0), two(1), two(2), two(3));
      const int output = place.output + 8 * (j + quarter);
      if (is_inside && output < a.call.outputs)
        *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.call.y) + line + output) = eight;
    }
  }
}

/// kWhole: all outputs have one row of factors, that of `factor_row`.
template <int kHalves, bool kWhole>
__device__ void multiply_slabs(const Arguments& a, const Pipeline& pipeline,
                               const float (*factors)[Shape<kHalves>::kRows], const Place& place,
                               int64_t factor_row, PipelineState& state,
                               float (&sum)[kHalves][64]) {
  using S = Shape<kHalves>;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = 64 * kHalves * group + 16 * warp + lane / 4;
  const float* of_weights = a.call.weight.factors_BC + (kWhole ? factor_row * a.slabs : 0);
  float dot[64] = {};  // once: what a product overwrites is no reason to clear it each time
  for (int slab = place.begin; slab < place.end; ++slab) {
    const float of_w = kWhole ? __ldg(of_weights + slab) : 0.0F;
    wait(pipeline.full + 8 * state.stage, state.phase);
    const uint32_t stage = pipeline.memory + state.stage * S::kStageBytes;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      wgmma_fence();
      wgmma_block(dot, stage + 64 * kSlab * (kHalves * group + half), stage + S::kXBytes);
      wgmma_commit_group();
      const float low = factors[state.stage][local + 64 * half],
                  high = factors[state.stage][local + 64 * half + 8];
      wgmma_wait_group<0>();
      settle(dot);
      if (half == kHalves - 1) {
        __syncwarp();  // all lanes have read the factors
        if (lane == 0) arrive(pipeline.empty + 8 * state.stage);
      }
      if constexpr (!kWhole) {
        add_slab(sum[half], dot, low, high,
                 {a.call.weight.factor_row_O, a.call.weight.factors_BC + slab, a.slabs},
                 place.output, a.call.outputs);
      } else {
        add_slab(sum[half], dot, low * of_w, high * of_w);
      }
    }
    state.advance(1, S::kStages);
  }
}

template <int kHalves>
__device__ void multiply_tiles(const Arguments& a, const Pipeline& pipeline,
                               const float (*factors)[Shape<kHalves>::kRows]) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = 64 * kHalves * group + 16 * warp + lane / 4;
  PipelineState state;
  for (int tile = blockIdx.x; tile < a.tiles * a.splits; tile += gridDim.x) {
    const Place place = place_of<kHalves>(a, tile);
    const int64_t factor_row = factor_row_of(a, place.output);
    float sum[kHalves][64] = {};
    if (factor_row < 0) {
      multiply_slabs<kHalves, false>(a, pipeline, factors, place, 0, state, sum);
    } else {
      multiply_slabs<kHalves, true>(a, pipeline, factors, place, factor_row, state, sum);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      store_tile(a, place, place.row + local + 64 * half, sum[half]);
  }
}

#endif

template <int kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    many_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  using S = Shape<kHalves>;
  __shared__ Barriers<kHalves> barriers;
  __shared__ __align__(16) float factors[S::kStages][S::kRows];
  const Pipeline pipeline{shared_address(memory), shared_address(barriers.full),
                          shared_address(barriers.empty), S::kStages};
  launch_dependents();
  if (threadIdx.x == kConsumers) {
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(pipeline.full + 8 * i, 2);  // of weights and of x
      init_barrier(pipeline.empty + 8 * i, kConsumers / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    decrease_registers<24>();
    if (threadIdx.x == kConsumers) load_weights<kHalves>(a, pipeline);
    if (threadIdx.x == kConsumers + 32) load_x<kHalves>(a, pipeline, shared_address(factors));
  } else {
    increase_registers<240>();
    grid_dependency_wait();
    multiply_tiles<kHalves>(a, pipeline, factors);
  }
#endif
}

template <int kHalves>
void run(const Product& call, int splits, cudaStream_t stream) {
  using S = Shape<kHalves>;
  constexpr auto kKernel = many_product_kernel<kHalves>;
  Arguments a;
  a.call = call;
  a.call.float_result |= call.epilogue == Product::Epilogue::kSplitK;
  a.x_rows = std::min(S::kRows, round_up(call.rows, 8));
  a.weights = code_map(call.weight.codes_OI, 1, call.outputs, call.inputs, kTile);
  a.x = code_map(call.x.codes_TI, 1, call.rows, call.inputs, a.x_rows);
  a.slabs = divide_up(call.inputs, kSlab);
  a.pitch = static_cast<int>(factor_pitch(call.rows));
  a.row_tiles = divide_up(call.rows, S::kRows);
  a.tiles = a.row_tiles * divide_up(call.outputs, kTile);
  a.splits = splits;
  allow_shared_memory<kKernel>(S::kStages * S::kStageBytes);
  launch(kKernel, dim3(std::min(a.tiles * splits, num_processors())), dim3(kThreads),
         S::kStages * S::kStageBytes, stream, a);
}

}  // namespace

int many_product_splits(int rows, int inputs, int outputs) {
  const int tiles = divide_up(rows, 128) * divide_up(outputs, kTile),
            slabs = divide_up(inputs, kSlab);
  return std::clamp(num_processors() / tiles, 1, std::clamp(slabs / kLeastSlabs, 1, kMostOfInputs));
}

void many_product(const Product& call, cudaStream_t stream) {
  if (call.rows < 1 || call.inputs % 16 != 0 || call.outputs % 8 != 0 ||
      call.epilogue == Product::Epilogue::kSwiglu)
    throw std::runtime_error("no product of " + std::to_string(call.rows) + " rows of codes with " +
                             std::to_string(call.outputs) + " by " + std::to_string(call.inputs));
  if (call.epilogue == Product::Epilogue::kSplitK)
    return run<1>(call, many_product_splits(call.rows, call.inputs, call.outputs), stream);
  const int large = divide_up(call.rows, 256) * divide_up(call.outputs, kTile);
  large >= 2 * num_processors() ? run<2>(call, 1, stream) : run<1>(call, 1, stream);
}

}  // namespace slime::kernels::cuda::fp8
