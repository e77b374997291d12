/// Warp-specialised and persistent: an item is a tile of 128 by 256 numbers of one expert's result.
/// One producer thread copies both operands, 64 of what is summed over a stage, through a pipeline in
/// shared memory that runs on from item to item; two consumer warpgroups multiply 64 rows of the tile
/// each. An operand whose sum runs along its rows in memory is K-major, the other kind lies in shared
/// memory as slabs of 64 columns and is multiplied turned (MN-major).

#include "kernels/cuda/experts/grouped_product.h"

#include <algorithm>
#include <stdexcept>

#include "core/divide_up.h"
#include "kernels/cuda/experts/grouped_work.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/gated_epilogue.cuh"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/products/tile_map.h"
#include "kernels/cuda/products/warpgroup.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kHalfColumns = kTileColumns / 2;
constexpr int kDepth = kSlab;                      // of what is summed over, in a stage
constexpr int kSlabBytes = 2 * kSlab * kDepth;     // 64 columns of 64 rows
constexpr int kRowBytes = 2 * kTileRows * kDepth;  // the operand with the tile's rows
constexpr int kStageBytes = kRowBytes + 2 * kTileColumns * kDepth;
constexpr int kStages = 4, kSharedBytes = kStages * kStageBytes;
constexpr int kGroups = 2, kConsumers = 128 * kGroups, kThreads = kConsumers + 128;

/// kForwardGated: SwiGLU is the epilogue; columns are pairs, a tile has 128 gates and then their ups.
enum class Kind { kForward, kForwardGated, kInputGradient, kWeightGradient };
constexpr bool is_forward(Kind kind) {
  return kind == Kind::kForward || kind == Kind::kForwardGated;
}
/// Of an expert's result that a tile has.
constexpr int columns_of_tile(Kind kind) {
  return kind == Kind::kForwardGated ? kHalfColumns : kTileColumns;
}

struct Arguments {
  CUtensorMap rows_map, columns_map;  // operands with the tile's rows and with its columns
  const int32_t* starts_E1 = nullptr;
  void* y = nullptr;
  int experts = 0;
  int height = 0, width = 0,
      depth = 0;  // of an expert's result, and what is summed over; 0: its rows
  int column_tiles = 0, row_tiles = 0;  // row_tiles 0: of its rows
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using Work = GroupedWork;
using Item = GroupedItem;

template <typename Fn>
__device__ void for_each_item(const Arguments& a, const Work& work, const Fn& fn) {
  for_each_grouped_item<kTileRows>(work, a.experts, a.row_tiles, fn);
}

__device__ int depth_tiles(const Arguments& a, const Item& item) {
  return ((a.depth > 0 ? a.depth : item.rows) + kDepth - 1) / kDepth;
}

/// The producer, by one thread.
template <Kind kKind>
__device__ void load(const Arguments& a, const Work& work, const Pipeline& pipeline) {
  PipelineState state;
  for_each_item(a, work, [&](const Item& item) {
    const int tiles = depth_tiles(a, item);
    const int row = item.row_tile * kTileRows, column = item.column_tile * columns_of_tile(kKind);
    for (int d = 0; d < tiles; ++d) {
      wait(pipeline.empty + 8 * state.stage, state.phase ^ 1);
      const uint32_t barrier = pipeline.full + 8 * state.stage;
      const uint32_t rows = pipeline.memory + state.stage * kStageBytes, columns = rows + kRowBytes;
      const int depth = d * kDepth;
      arrive_expect_tx(barrier, kStageBytes);
      if constexpr (kKind == Kind::kWeightGradient) {
#pragma unroll
        for (int s = 0; s < kTileRows / kSlab; ++s)
          copy_rows(rows + s * kSlabBytes, a.rows_map, row + s * kSlab, item.first + depth,
                    barrier);
      } else {
        copy_rows(rows, a.rows_map, depth, item.first + row, barrier);
      }
      if constexpr (kKind == Kind::kForward) {
        copy_rows(columns, a.columns_map, depth, item.expert * a.width + column, barrier);
      } else if constexpr (kKind == Kind::kForwardGated) {
        const int gate = item.expert * 2 * a.width + column;
        copy_rows(columns, a.columns_map, depth, gate, barrier);
        copy_rows(columns + 2 * kHalfColumns * kDepth, a.columns_map, depth, gate + a.width,
                  barrier);
      } else {
        const int from =
            kKind == Kind::kWeightGradient ? item.first + depth : item.expert * a.depth + depth;
#pragma unroll
        for (int s = 0; s < kTileColumns / kSlab; ++s)
          copy_rows(columns + s * kSlabBytes, a.columns_map, column + s * kSlab, from, barrier);
      }
      state.advance(1, kStages);
    }
  });
}

/// Rows of a weight gradient's sum that belong to the next expert become zero in one of the factors.
__device__ void clear_behind(uint32_t slab, int valid, int group) {
  for (int i = threadIdx.x % 128; i < (kDepth - valid) * 8; i += 128)
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(slab + 128 * valid + 16 * i),
                 "r"(0)
                 : "memory");
  fence_async_shared();
  asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

/// Main loop of a consumer warpgroup. Returns the index of the last stage, which the caller releases.
template <Kind kKind>
__device__ int multiply(const Pipeline& pipeline, PipelineState& state, int tiles, int rows,
                        int group, float (&sum)[2][kHalfColumns / 2]) {
  constexpr bool kTurnsRows = kKind == Kind::kWeightGradient;
  constexpr bool kTurnsColumns = !is_forward(kKind);
  // The next 16 of what is summed over, and the other half of the columns.
  constexpr int kNextRows = (kTurnsRows ? 16 * 128 : 32) >> 4;
  constexpr int kNextColumns = (kTurnsColumns ? 16 * 128 : 32) >> 4;
  constexpr int kOtherHalf = (kTurnsColumns ? 2 * kSlabBytes : 128 * kHalfColumns) >> 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (float& x : sum[h]) x = 0;
  }
  int last = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    wait(pipeline.full + 8 * state.stage, state.phase);
    // 64 rows of the tile are 64 lines, or a slab: as many bytes.
    const uint32_t stage = pipeline.memory + state.stage * kStageBytes,
                   own = stage + kSlabBytes * group;
    if (kTurnsRows && (i + 1) * kDepth > rows) clear_behind(own, rows - i * kDepth, group);
    const uint64_t of_rows =
        kTurnsRows ? matrix_descriptor(own, kSlabBytes) : matrix_descriptor(own);
    const uint64_t of_columns = kTurnsColumns ? matrix_descriptor(stage + kRowBytes, kSlabBytes)
                                              : matrix_descriptor(stage + kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        wgmma_turned<kTurnsRows, kTurnsColumns>(sum[h], of_rows + kNextRows * k,
                                                of_columns + kOtherHalf * h + kNextColumns * k);
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (i > 0 && threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    last = state.stage;
    state.advance(1, kStages);
  }
  wgmma_wait_group<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) settle(sum[h]);
  return last;
}

/// First row of the tile that this thread has numbers of; the others are eight further.
__device__ int first_row(int group) {
  return 64 * group + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
}

/// Four threads have a word each of two neighbouring blocks, a and b: afterwards the first two have
/// two neighbouring words of a each, the others of b.
__device__ uint2 exchange(uint32_t a, uint32_t b) {
  const bool is_upper = threadIdx.x % 4 >= 2, is_odd = threadIdx.x % 2 == 1;
  const uint32_t far = __shfl_xor_sync(0xffffffffU, is_upper ? a : b, 2);
  const uint32_t low = is_upper ? far : a, high = is_upper ? b : far;
  const uint32_t near = __shfl_xor_sync(0xffffffffU, is_odd ? low : high, 1);
  return is_odd ? make_uint2(near, high) : make_uint2(low, near);
}

/// Calls fn(row, column, c) for the accumulators of each of this thread's rows, in two neighbouring
/// blocks of eight columns: c[0] and c[1] of the first, c[4] and c[5] of the second. After exchange()
/// the thread has four columns from `column` on.
template <typename Fn>
__device__ void for_each_pair(const Item& item, int group, const float (&sum)[2][kHalfColumns / 2],
                              const Fn& fn) {
  const int begin = item.column_tile * kTileColumns + 4 * (threadIdx.x % 4);
  const int first =
      item.row_tile * kTileRows + 64 * group + 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int j = 0; j < kHalfColumns / 8; j += 2) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        fn(first + 8 * r, begin + kHalfColumns * h + 8 * j, sum[h] + 4 * j + 2 * r);
    }
  }
}

__device__ void write_rows(const Arguments& a, const Item& item, int group,
                           const float (&sum)[2][kHalfColumns / 2]) {
  auto* y = static_cast<__nv_bfloat16*>(a.y) + static_cast<int64_t>(item.first) * a.width;
  for_each_pair(item, group, sum, [&](int row, int column, const float* c) {
    const uint2 four = exchange(pack<__nv_bfloat16>(c[0], c[1]), pack<__nv_bfloat16>(c[4], c[5]));
    if (row < item.rows && column < a.width)
      *reinterpret_cast<uint2*>(y + static_cast<int64_t>(row) * a.width + column) = four;
  });
}

__device__ void write_gated(const Arguments& a, const Item& item, int group,
                            const float (&sum)[2][kHalfColumns / 2]) {
  auto* y = static_cast<__nv_bfloat16*>(a.y) + static_cast<int64_t>(item.first) * a.width;
  const int first = item.row_tile * kTileRows + first_row(group),
            begin = item.column_tile * kHalfColumns + 4 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kHalfColumns / 2; i += 8) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto one = [&](int n) { return gated<__nv_bfloat16>(sum[0][n], sum[1][n]); };
      const auto two = [&](int n) { return pack<__nv_bfloat16>(one(n), one(n + 1)); };
      const uint2 four = exchange(two(i + 2 * r), two(i + 4 + 2 * r));
      const int row = first + 8 * r, column = begin + 2 * i;
      if (row < item.rows && column < a.width)
        *reinterpret_cast<uint2*>(y + static_cast<int64_t>(row) * a.width + column) = four;
    }
  }
}

/// Reductions are done where the memory is: nobody waits for what is there.
__device__ void add_gradient(const Arguments& a, const Item& item, int group,
                             const float (&sum)[2][kHalfColumns / 2]) {
  auto* y = static_cast<float*>(a.y) + static_cast<int64_t>(item.expert) * a.height * a.width;
  for_each_pair(item, group, sum, [&](int row, int column, const float* c) {
    const uint2 even = exchange(__float_as_uint(c[0]), __float_as_uint(c[4]));
    const uint2 odd = exchange(__float_as_uint(c[1]), __float_as_uint(c[5]));
    if (row >= a.height || column >= a.width) return;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     y + static_cast<int64_t>(row) * a.width + column),
                 "f"(__uint_as_float(even.x)), "f"(__uint_as_float(odd.x)),
                 "f"(__uint_as_float(even.y)), "f"(__uint_as_float(odd.y))
                 : "memory");
  });
}

#endif

template <Kind kKind>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Work work;
  __shared__ uint64_t full[kStages], empty[kStages];
  const Pipeline pipeline{shared_address(memory), shared_address(full), shared_address(empty),
                          kStages};
  if (threadIdx.x == kConsumers) {
    prefetch_map(a.rows_map);
    prefetch_map(a.columns_map);
    for (int i = 0; i < kStages; ++i) {
      init_barrier(pipeline.full + 8 * i, 1);
      init_barrier(pipeline.empty + 8 * i, kGroups);
    }
    fence_barrier_init();
  }
  launch_dependents();
  grid_dependency_wait();
  list_grouped_work<kThreads, kTileRows>(work, a.starts_E1, a.experts, a.row_tiles, a.column_tiles);
  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    decrease_registers<24>();
    if (threadIdx.x == kConsumers) {
      fence_async_global();
      load<kKind>(a, work, pipeline);
    }
    return;
  }
  increase_registers<240>();
  float sum[2][kHalfColumns / 2];
  PipelineState state;
  for_each_item(a, work, [&](const Item& item) {
    const int last = multiply<kKind>(pipeline, state, depth_tiles(a, item), item.rows, group, sum);
    if (threadIdx.x % 128 == 0) arrive(pipeline.empty + 8 * last);
    if constexpr (kKind == Kind::kWeightGradient) {
      add_gradient(a, item, group, sum);
    } else if constexpr (kKind == Kind::kForwardGated) {
      write_gated(a, item, group, sum);
    } else {
      write_rows(a, item, group, sum);
    }
  });
#endif
}

template <Kind kKind>
void run(const Arguments& a, int64_t most_items, cudaStream_t stream) {
  constexpr auto kKernel = grouped_product_kernel<kKind>;
  allow_shared_memory<kKernel>(kSharedBytes);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most_items, num_processors()));
  launch(kKernel, dim3(blocks), dim3(kThreads), kSharedBytes, stream, a);
}

void check_sizes(int64_t experts, int64_t outputs, int64_t inputs) {
  if (!has_grouped_product(experts, outputs, inputs))
    throw std::runtime_error("no grouped product of these sizes");
}

}  // namespace

bool has_grouped_product(int64_t experts, int64_t outputs, int64_t inputs) {
  return compute_capability_major() == 9 && experts <= kMostGroupedExperts && outputs % 8 == 0 &&
         inputs % 8 == 0;
}

void grouped_product(const GroupedProduct& call, cudaStream_t stream) {
  check_sizes(call.experts, call.outputs, call.inputs);
  if (call.rows == 0) return;
  if (call.is_gated && (call.is_turned || call.outputs % 16 != 0))
    throw std::runtime_error("no gated product of these sizes");
  const int64_t weight_rows = int64_t{call.experts} * call.outputs;
  Arguments a;
  a.starts_E1 = call.starts_E1;
  a.y = call.y_S;
  a.experts = call.experts;
  a.width = call.is_turned ? call.inputs : call.is_gated ? call.outputs / 2 : call.outputs;
  a.depth = call.is_turned ? call.outputs : call.inputs;
  a.column_tiles = divide_up(a.width, call.is_gated ? kHalfColumns : kTileColumns);
  a.rows_map = row_map(call.x_S, call.rows, a.depth, kTileRows);
  a.columns_map = row_map(call.weight_EOI, weight_rows, call.inputs,
                          call.is_turned  ? kDepth
                          : call.is_gated ? kHalfColumns
                                          : kTileColumns);
  const int64_t most = (call.rows / kTileRows + call.experts) * a.column_tiles;
  if (call.is_turned) return run<Kind::kInputGradient>(a, most, stream);
  call.is_gated ? run<Kind::kForwardGated>(a, most, stream) : run<Kind::kForward>(a, most, stream);
}

void grouped_gradient(const GroupedGradient& call, cudaStream_t stream) {
  check_sizes(call.experts, call.outputs, call.inputs);
  if (call.rows == 0) return;
  Arguments a;
  a.starts_E1 = call.starts_E1;
  a.y = call.grad_EOI;
  a.experts = call.experts;
  a.height = call.outputs;
  a.width = call.inputs;
  a.row_tiles = divide_up(call.outputs, kTileRows);
  a.column_tiles = divide_up(call.inputs, kTileColumns);
  a.rows_map = row_map(call.dy_SO, call.rows, call.outputs, kDepth);
  a.columns_map = row_map(call.x_SI, call.rows, call.inputs, kDepth);
  run<Kind::kWeightGradient>(a, int64_t{call.experts} * a.row_tiles * a.column_tiles, stream);
}

}  // namespace slime::kernels::cuda
