#include "kernels/cuda/products/skinny_linear.h"

#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kOutputs = 16;  // per tile
constexpr int kBlocksPerProcessor = 2;

/// A warp's operands of one K block of 32 inputs: two rows of weights, and rows of x.
template <int kTiles>
struct Operands {
  uint4 low, high;
  uint4 x[kTiles];
};

/// kTiles: groups of eight rows of x. kAhead: K blocks in flight per warp, a software pipeline in
/// registers. Persistent: a thread block walks over tiles of outputs, and its warps' K blocks of
/// all tiles are one stream, so that the next tile's weights are in flight during this one's
/// epilogue.
template <typename T, typename Y, int kTiles, int kAhead>
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerProcessor)
    skinny_linear_kernel(const T* x_TI, const T* weight_OI, const T* bias_O, Y* y_TO, int rows,
                         int inputs, int outputs) {
  __shared__ float partial[2][kWarps][kTiles * 8][kOutputs + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int blocks = inputs / 32, num_tiles = outputs / kOutputs;
  const int begin = blocks * warp / kWarps, count = blocks * (warp + 1) / kWarps - begin;
  const int my_tiles = (num_tiles - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x;
  const int total = my_tiles * count;
  const T* weights = weight_OI + static_cast<int64_t>(blockIdx.x * kOutputs + group) * inputs +
                     begin * 32 + quarter * 8;
  const T* inputs_of_lane = x_TI + static_cast<int64_t>(group) * inputs + begin * 32 + quarter * 8;
  const int64_t tile_stride = static_cast<int64_t>(gridDim.x) * kOutputs * inputs;

  // Where the next load is: block `load_block` of the tile whose weights begin at `load_from`.
  const T* load_from = weights;
  int load_block = 0, loaded = 0;
  const auto load_weights = [&](Operands<kTiles>& to) {
    to.low = load_once(load_from + load_block * 32);
    to.high = load_once(load_from + static_cast<int64_t>(8) * inputs + load_block * 32);
  };
  const auto load_x = [&](Operands<kTiles>& to, int block) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      to.x[tile] = make_uint4(0, 0, 0, 0);
      if (tile * 8 + group < rows)
        to.x[tile] = *reinterpret_cast<const uint4*>(
            inputs_of_lane + static_cast<int64_t>(tile * 8) * inputs + block * 32);
    }
  };
  const auto step = [&] {
    ++loaded;
    if (++load_block < count) return;
    load_block = 0;
    load_from += tile_stride;
  };

  Operands<kTiles> operands[kAhead];
  int first_blocks[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    first_blocks[i] = load_block;
    if (loaded >= total) continue;
    load_weights(operands[i]);
    step();
  }
  launch_dependents();
  grid_dependency_wait();
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (i < total) load_x(operands[i], first_blocks[i]);

  float sum[kTiles][4] = {};
  int block = 0, tile_index = 0;
  for (int done = 0; done < total; done += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (done + i < total) {
        const Operands<kTiles> now = operands[i];
        if (loaded < total) {
          load_weights(operands[i]);
          load_x(operands[i], load_block);
          step();
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 x = now.x[tile];
          multiply<T>(sum[tile], now.low.x, now.high.x, now.low.y, now.high.y, x.x, x.y);
          multiply<T>(sum[tile], now.low.z, now.high.z, now.low.w, now.high.w, x.z, x.w);
        }
        if (++block == count) {
          // The tile is complete. Two buffers: the one of the tile before may still be read.
          auto& mine = partial[tile_index & 1][warp];
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            const int row = tile * 8 + quarter * 2;
            mine[row][group] = sum[tile][0];
            mine[row + 1][group] = sum[tile][1];
            mine[row][group + 8] = sum[tile][2];
            mine[row + 1][group + 8] = sum[tile][3];
            sum[tile][0] = sum[tile][1] = sum[tile][2] = sum[tile][3] = 0;
          }
          __syncthreads();
          const int first_output =
              (static_cast<int>(blockIdx.x) + tile_index * static_cast<int>(gridDim.x)) * kOutputs;
          for (int n = threadIdx.x; n < rows * kOutputs; n += blockDim.x) {
            const int row = n / kOutputs, output = n % kOutputs;
            float total_sum = bias_O == nullptr ? 0.0F : to_float(bias_O[first_output + output]);
#pragma unroll
            for (int w = 0; w < kWarps; ++w) total_sum += partial[tile_index & 1][w][row][output];
            y_TO[static_cast<int64_t>(row) * outputs + first_output + output] =
                from_float<Y>(total_sum);
          }
          block = 0;
          ++tile_index;
        }
      }
    }
  }
}

template <typename T, typename Y>
void run(const LinearCall& call, Stream stream) {
  const auto kernel =
      call.rows <= 8 ? skinny_linear_kernel<T, Y, 1, 5> : skinny_linear_kernel<T, Y, 2, 4>;
  const int tiles = static_cast<int>(call.outputs / kOutputs);
  const int blocks = kBlocksPerProcessor * num_processors();
  launch(kernel, dim3(tiles < blocks ? tiles : blocks), dim3(32 * kWarps), 0, stream,
         static_cast<const T*>(call.x_TI), static_cast<const T*>(call.weight_OI),
         static_cast<const T*>(call.bias_O), static_cast<Y*>(call.y_TO),
         static_cast<int>(call.rows), static_cast<int>(call.inputs),
         static_cast<int>(call.outputs));
}

}  // namespace

bool is_skinny(const LinearCall& call) {
  return call.number != Number::kFloat32 && call.rows <= 16 && call.inputs % 32 == 0 &&
         call.inputs >= 32 * kWarps && call.outputs % kOutputs == 0;
}

void skinny_linear(const LinearCall& call, Stream stream) {
  if (!is_skinny(call)) throw std::runtime_error("not a product of few rows");
  if (call.number == Number::kBFloat16) {
    call.float_result ? run<BFloat16, float>(call, stream) : run<BFloat16, BFloat16>(call, stream);
  } else {
    call.float_result ? run<Float16, float>(call, stream) : run<Float16, Float16>(call, stream);
  }
}

}  // namespace slime::kernels::cuda
