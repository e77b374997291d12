#include "kernels/cuda/batch_product.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/tile_map.h"
#include "kernels/cuda/warpgroup.cuh"

/// A block has up to 192 outputs (weight rows) and a part of the inputs. One thread asks for
/// weights and x, tile by tile, through a ring in shared memory; each group of four warps
/// multiplies 64 of the outputs with all rows of x. Where outputs end within a group's 64, it
/// multiplies what happens to lie there, and nobody looks at the result.

namespace slime::kernels::cuda {
namespace {

using Ending = BatchProduct::Ending;

constexpr int kMostRows = 64;
constexpr int kMostGroups = 3;  // of four warps
constexpr int kGroupOutputs = 64;
constexpr int kMaxStages = 16;
/// A ring of 64 KB is too small for the memory's latency; what is more than this gains nothing.
constexpr int kSharedBytes = 160 << 10;
constexpr int kMostParts = 8;

/// How a product is cut into blocks.
struct Cut {
  int box = 0;     // outputs of a block (pairs of gate and up)
  int tiles = 0;   // blocks that all outputs take
  int parts = 0;   // of the inputs
  int slabs = 0;   // of 64 inputs in a stage
  int chunks = 0;  // stages that all inputs take
};

struct Arguments {
  CUtensorMap weights, x;
  const __nv_bfloat16* bias_O = nullptr;
  void* y = nullptr;
  Cut cut;
  Ending ending = Ending::kStore;
  int rows = 0, units = 0;  // units: outputs, or pairs
  int stages = 0, slot_bytes = 0, x_begin = 0;
};

struct Barriers {
  uint64_t full[kMaxStages], empty[kMaxStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ void sync_groups(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

/// By one thread.
template <int kRows>
__device__ void ask_for_tiles(const Arguments& a, uint32_t ring, uint32_t full, uint32_t empty,
                              int begin, int end) {
  const Cut& cut = a.cut;
  const bool is_pairs = a.ending == Ending::kSwiglu;
  const int half = 128 * cut.slabs * cut.box, first = blockIdx.x * cut.box;
  const int bytes = (is_pairs ? 2 * half : half) + 128 * cut.slabs * kRows;
  const auto ask_for_weights = [&](int chunk, int slot) {
    const uint32_t barrier = full + 8 * slot, to = ring + slot * a.slot_bytes;
    arrive_expecting(barrier, bytes);
    const int slab = chunk * cut.slabs;
    if (is_pairs) {
      // [slab, output, 64] as one matrix: gates, then ups of each slab.
      for (int s = 0; s < cut.slabs; ++s) {
        copy_tile(to + 256 * s * cut.box, a.weights, first, slab + s, barrier);
        copy_tile(to + 256 * s * cut.box + 128 * cut.box, a.weights, a.units + first, slab + s,
                  barrier);
      }
    } else {
      copy_tile(to, a.weights, first, slab, barrier);
    }
  };
  const auto ask_for_x = [&](int chunk, int slot) {
    copy_tile(ring + slot * a.slot_bytes + a.x_begin, a.x, 0, chunk * cut.slabs, full + 8 * slot);
  };
  const int count = end - begin, ahead = min(count, a.stages);
  prefetch_map(a.x);
  for (int i = 0; i < ahead; ++i) ask_for_weights(begin + i, i);
  if (ahead == count) let_next_start();
  wait_for_inputs();
  let_copies_see();
  for (int i = 0; i < ahead; ++i) ask_for_x(begin + i, i);
  int slot = 0;
  uint32_t round = 0;
  for (int i = ahead; i < count; ++i) {
    wait(empty + 8 * slot, round);
    ask_for_weights(begin + i, slot);
    ask_for_x(begin + i, slot);
    if (i + 1 == count) let_next_start();
    if (++slot == a.stages) {
      slot = 0;
      round ^= 1;
    }
  }
}

template <int kRows, int kSlabs>
__device__ void multiply_tiles(const Arguments& a, uint32_t ring, uint32_t full, uint32_t empty,
                               int count, int group, float (&sum)[kRows / 2]) {
  const Cut& cut = a.cut;
  const int outputs = a.ending == Ending::kSwiglu ? 2 * cut.box : cut.box;
  int slot = 0, last = 0;
  uint32_t round = 0;
  for (int i = 0; i < count; ++i) {
    wait(full + 8 * slot, round);
    const uint32_t weights = ring + slot * a.slot_bytes + 128 * kGroupOutputs * group;
    const uint32_t x = ring + slot * a.slot_bytes + a.x_begin;
    begin_products();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const uint64_t w_operand = operand_at(weights + 128 * slab * outputs);
      const uint64_t x_operand = operand_at(x + 128 * slab * kRows);
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_add(sum, w_operand + 2 * k, x_operand + 2 * k);
    }
    end_products();
    if (i > 0) {
      await_products<1>();
      if (threadIdx.x % 128 == 0) arrive(empty + 8 * last);
    }
    last = slot;
    if (++slot == a.stages) {
      slot = 0;
      round ^= 1;
    }
  }
  await_products<0>();
}

/// A thread's sums as they are: a warp writes 32 bytes side by side for each of four rows.
template <int kRows>
__device__ void write_parts(const Arguments& a, int group, const float (&sum)[kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = kGroupOutputs * group + 16 * warp + lane / 4;
  const int first = blockIdx.x * a.cut.box;
  auto* y = static_cast<float*>(a.y) + static_cast<int64_t>(blockIdx.y) * a.rows * a.units;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = local + 8 * half;
    if (output >= a.cut.box || first + output >= a.units) continue;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * j + 2 * (lane % 4) + i;
        if (row < a.rows)
          y[static_cast<int64_t>(row) * a.units + first + output] = sum[4 * j + 2 * half + i];
      }
    }
  }
}

/// By way of shared memory: [row, output].
template <int kRows>
__device__ void write_outputs(const Arguments& a, float* sums, int group, int threads,
                              const float (&sum)[kRows / 2]) {
  const bool is_pairs = a.ending == Ending::kSwiglu;
  const int box = a.cut.box, outputs = is_pairs ? 2 * box : box, pitch = outputs + 4;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  sync_groups(threads);  // the ring's tiles have been used
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = kGroupOutputs * group + 16 * warp + lane / 4 + 8 * half;
    if (output >= outputs) continue;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums[(8 * j + 2 * (lane % 4) + i) * pitch + output] = sum[4 * j + 2 * half + i];
    }
  }
  sync_groups(threads);
  constexpr int kPiece = 4;
  const int first = blockIdx.x * box, pieces = min(box, a.units - first) / kPiece;
  auto* y = static_cast<__nv_bfloat16*>(a.y);
  for (int n = threadIdx.x; n < a.rows * pieces; n += threads) {
    const int row = n / pieces, output = n % pieces * kPiece;
    const auto read = [&](int from, int bias) {
      float4 x = *reinterpret_cast<const float4*>(sums + row * pitch + from);
      if (a.bias_O != nullptr) {
        x.x += to_float(a.bias_O[bias]);
        x.y += to_float(a.bias_O[bias + 1]);
        x.z += to_float(a.bias_O[bias + 2]);
        x.w += to_float(a.bias_O[bias + 3]);
      }
      return x;
    };
    float4 x = read(output, first + output);
    if (is_pairs) {
      const float4 up = read(box + output, a.units + first + output);
      const auto gated = [](float gate, float of) { return gate / (1.0F + __expf(-gate)) * of; };
      x = make_float4(gated(x.x, up.x), gated(x.y, up.y), gated(x.z, up.z), gated(x.w, up.w));
    }
    const __nv_bfloat162 both[2] = {__floats2bfloat162_rn(x.x, x.y),
                                    __floats2bfloat162_rn(x.z, x.w)};
    *reinterpret_cast<uint2*>(y + static_cast<int64_t>(row) * a.units + first + output) =
        *reinterpret_cast<const uint2*>(both);
  }
}

#endif

/// kRows: of x, with those that are not there. kSlabs: Cut::slabs.
template <int kRows, int kSlabs>
__global__ void __launch_bounds__(128 * kMostGroups + 32)
    batch_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  const int threads = static_cast<int>(blockDim.x) - 32, warp = threadIdx.x / 32;
  const uint32_t full = shared_address(barriers.full), empty = shared_address(barriers.empty);
  const uint32_t ring = shared_address(memory);
  const int begin = a.cut.chunks * static_cast<int>(blockIdx.y) / a.cut.parts;
  const int end = a.cut.chunks * (static_cast<int>(blockIdx.y) + 1) / a.cut.parts;
  if (threadIdx.x == threads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.stages; ++i) {
      init_barrier(full + 8 * i, 1);
      init_barrier(empty + 8 * i, threads / 128);
    }
    publish_barriers();
  }
  __syncthreads();
  if (4 * 32 * (warp / 4) == threads) {
    if (threadIdx.x == threads) ask_for_tiles<kRows>(a, ring, full, empty, begin, end);
    return;
  }
  wait_for_inputs();
  float sum[kRows / 2] = {};
  const int group = warp / 4;
  multiply_tiles<kRows, kSlabs>(a, ring, full, empty, end - begin, group, sum);
  if (a.ending == Ending::kParts) {
    write_parts<kRows>(a, group, sum);
  } else {
    write_outputs<kRows>(a, reinterpret_cast<float*>(memory), group, threads, sum);
  }
#endif
}

struct DeviceTraits {
  int processors = 0, major = 0;
};

const DeviceTraits& device_traits() {
  static const DeviceTraits traits = [] {
    DeviceTraits out;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&out.processors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&out.major, cudaDevAttrComputeCapabilityMajor, device),
               "cudaDeviceGetAttribute");
    return out;
  }();
  return traits;
}

int up(int a, int b) { return (a + b - 1) / b; }

/// Blocks of 64 outputs and as many parts of the inputs as make a block for each processor; smaller
/// ones where that leaves more than a tenth of the processors idle.
Cut cut_into_parts(int outputs, int slabs_of_inputs) {
  const int processors = device_traits().processors;
  Cut best;
  int most_blocks = 0;
  for (int box = kGroupOutputs; box >= 8; box -= 8) {
    Cut cut;
    cut.box = box;
    cut.tiles = up(outputs, box);
    cut.parts =
        std::clamp(processors / cut.tiles, 1, std::max(1, std::min(kMostParts, slabs_of_inputs)));
    const int blocks = std::min(cut.tiles * cut.parts, processors);
    if (blocks <= most_blocks) continue;
    most_blocks = blocks;
    best = cut;
    if (10 * blocks >= 9 * processors) break;
  }
  return best;
}

/// As many blocks as processors, or a multiple of that.
Cut cut_outputs(int units, int step, int most) {
  const int processors = device_traits().processors;
  const auto box_of = [&](int waves) { return up(up(units, waves * processors), step) * step; };
  Cut cut;
  for (int waves = 1; cut.box == 0 || cut.box > most; ++waves) cut.box = box_of(waves);
  cut.tiles = up(units, cut.box);
  cut.parts = 1;
  return cut;
}

Cut cut_product(int inputs, int outputs, Ending ending) {
  const bool is_pairs = ending == Ending::kSwiglu;
  constexpr int kMost = kMostGroups * kGroupOutputs;
  Cut cut = ending == Ending::kParts ? cut_into_parts(outputs, inputs / (2 * kSlab))
            : is_pairs               ? cut_outputs(outputs / 2, 4, kMost / 2)
                                     : cut_outputs(outputs, 8, kMost);
  cut.slabs = (is_pairs ? 2 * cut.box : cut.box) <= kGroupOutputs ? 2 : 1;
  cut.chunks = up(inputs, kSlab * cut.slabs);
  return cut;
}

template <int kRows, int kSlabs>
void run(const BatchProduct& call, const Cut& cut, cudaStream_t stream) {
  const auto kernel = batch_product_kernel<kRows, kSlabs>;
  const bool is_pairs = call.ending == Ending::kSwiglu;
  Arguments a;
  a.cut = cut;
  a.bias_O = static_cast<const __nv_bfloat16*>(call.bias_O);
  a.y = call.y;
  a.ending = call.ending;
  a.rows = call.rows;
  a.units = is_pairs ? call.outputs / 2 : call.outputs;
  const int outputs = is_pairs ? 2 * a.cut.box : a.cut.box;
  a.weights = tile_map(Number::kBFloat16, call.weight_OI, call.outputs, call.inputs, a.cut.box,
                       is_pairs ? 1 : a.cut.slabs);
  a.x = tile_map(Number::kBFloat16, call.x_TI, call.rows, call.inputs, kRows, a.cut.slabs);
  const int groups = up(outputs, kGroupOutputs);
  a.x_begin = up(128 * a.cut.slabs * outputs, 1024) * 1024;
  a.slot_bytes = a.x_begin + 128 * a.cut.slabs * kRows;
  // Behind the last slot: what a group multiplies beyond the block's outputs.
  const int beyond =
      std::max(0, 128 * (outputs * (a.cut.slabs - 1) + kGroupOutputs * groups) - a.slot_bytes);
  a.stages = std::min({(kSharedBytes - beyond) / a.slot_bytes, kMaxStages, a.cut.chunks});
  const int sums = 4 * kRows * (outputs + 4);
  const int shared = std::max(a.stages * a.slot_bytes + beyond, sums);
  static const bool prepared = [&] {
    check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "shared memory of a product");
    return true;
  }();
  (void)prepared;
  launch(kernel, dim3(a.cut.tiles, a.cut.parts), dim3(128 * groups + 32), shared, stream, a);
}

}  // namespace

bool has_batch_product(Number number, int64_t rows) {
  return number == Number::kBFloat16 && rows <= kMostRows && device_traits().major == 9;
}

int batch_product_parts(int inputs, int outputs) {
  return cut_product(inputs, outputs, Ending::kParts).parts;
}

void batch_product(const BatchProduct& call, cudaStream_t stream) {
  if (!has_batch_product(Number::kBFloat16, call.rows))
    throw std::runtime_error("a product of a batch has at most " + std::to_string(kMostRows) +
                             " rows");
  const Cut cut = cut_product(call.inputs, call.outputs, call.ending);
  if (call.rows <= 32) {
    cut.slabs == 1 ? run<32, 1>(call, cut, stream) : run<32, 2>(call, cut, stream);
  } else {
    cut.slabs == 1 ? run<64, 1>(call, cut, stream) : run<64, 2>(call, cut, stream);
  }
}

}  // namespace slime::kernels::cuda
