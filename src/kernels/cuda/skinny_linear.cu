#include "kernels/cuda/skinny_linear.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kOutputs = 16;  // per block
constexpr int kAhead = 4;     // blocks of 32 inputs whose weights are in flight per warp

__device__ uint4 load_weights(const void* pointer) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(pointer));
  return x;
}

template <typename T>
__device__ void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                         uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

/// kTiles: groups of eight rows of x.
template <typename T, typename Y, int kTiles>
__global__ void __launch_bounds__(32 * kWarps)
    skinny_linear_kernel(const T* x_TI, const T* weight_OI, const T* bias_O, Y* y_TO, int rows,
                         int inputs, int outputs) {
  __shared__ float partial[kWarps][kTiles * 8][kOutputs + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quarter = lane % 4;
  const int first_output = blockIdx.x * kOutputs;
  // This warp's blocks of 32 inputs.
  const int blocks = inputs / 32;
  const int begin = blocks * warp / kWarps, end = blocks * (warp + 1) / kWarps;
  const T* low = weight_OI + static_cast<int64_t>(first_output + group) * inputs + quarter * 8;
  const T* high = low + static_cast<int64_t>(8) * inputs;

  uint4 w_low[kAhead], w_high[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (begin + i >= end) continue;
    w_low[i] = load_weights(low + (begin + i) * 32);
    w_high[i] = load_weights(high + (begin + i) * 32);
  }
  let_next_start();
  wait_for_inputs();

  float sum[kTiles][4] = {};
  for (int block = begin; block < end; block += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (block + i >= end) break;
      const uint4 a = w_low[i], b = w_high[i];
      if (block + i + kAhead < end) {
        w_low[i] = load_weights(low + (block + i + kAhead) * 32);
        w_high[i] = load_weights(high + (block + i + kAhead) * 32);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int row = tile * 8 + group;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (row < rows)
          x = *reinterpret_cast<const uint4*>(x_TI + static_cast<int64_t>(row) * inputs +
                                              (block + i) * 32 + quarter * 8);
        multiply<T>(sum[tile], a.x, b.x, a.y, b.y, x.x, x.y);
        multiply<T>(sum[tile], a.z, b.z, a.w, b.w, x.z, x.w);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int row = tile * 8 + quarter * 2;
    partial[warp][row][group] = sum[tile][0];
    partial[warp][row + 1][group] = sum[tile][1];
    partial[warp][row][group + 8] = sum[tile][2];
    partial[warp][row + 1][group + 8] = sum[tile][3];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * kOutputs; i += blockDim.x) {
    const int row = i / kOutputs, output = i % kOutputs;
    float total = bias_O == nullptr ? 0.0F : to_float(bias_O[first_output + output]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += partial[w][row][output];
    y_TO[static_cast<int64_t>(row) * outputs + first_output + output] = from_float<Y>(total);
  }
}

template <typename T, typename Y>
void run(const LinearCall& call, cudaStream_t stream) {
  const auto kernel = call.rows <= 8    ? skinny_linear_kernel<T, Y, 1>
                      : call.rows <= 16 ? skinny_linear_kernel<T, Y, 2>
                                        : skinny_linear_kernel<T, Y, 4>;
  launch(kernel, dim3(call.outputs / kOutputs), dim3(32 * kWarps), 0, stream,
         static_cast<const T*>(call.x_TI), static_cast<const T*>(call.weight_OI),
         static_cast<const T*>(call.bias_O), static_cast<Y*>(call.y_TO),
         static_cast<int>(call.rows), static_cast<int>(call.inputs),
         static_cast<int>(call.outputs));
}

}  // namespace

bool is_skinny(const LinearCall& call) {
  return call.number != Number::kFloat32 && call.rows <= 32 && call.inputs % 32 == 0 &&
         call.outputs % kOutputs == 0;
}

void skinny_linear(const LinearCall& call, cudaStream_t stream) {
  if (!is_skinny(call)) throw std::runtime_error("not a product of few rows");
  if (call.number == Number::kBFloat16) {
    call.float_result ? run<__nv_bfloat16, float>(call, stream)
                      : run<__nv_bfloat16, __nv_bfloat16>(call, stream);
  } else {
    call.float_result ? run<__half, float>(call, stream) : run<__half, __half>(call, stream);
  }
}

}  // namespace slime::kernels::cuda
