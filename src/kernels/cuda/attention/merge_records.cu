#include "kernels/cuda/attention/sink_weight.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;

__device__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

/// 2 or 4 floats in one load.
template <int kCount>
struct Floats {
  float x[kCount];
  __device__ void load(const float* from) {
    if constexpr (kCount == 4) {
      const float4 y = *reinterpret_cast<const float4*>(from);
      x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else {
      const float2 y = *reinterpret_cast<const float2*>(from);
      x[0] = y.x, x[1] = y.y;
    }
  }
};

/// A warp merges the records of a sequence for one query head.
template <typename T, int kDim>
__global__ void __launch_bounds__(32 * kWarps)
    merge_records_kernel(AttendCall call, DecodeArrays plan) {
  constexpr int kNumbers = kDim / 32;  // of a lane
  launch_dependents();
  const int lane = threadIdx.x % 32;
  const int sequence = blockIdx.x, head = blockIdx.y * kWarps + threadIdx.x / 32;
  const int first = plan.record_starts[sequence];
  const int num_records = plan.record_starts[sequence + 1] - first;
  const int64_t row = call.paged.query_starts[sequence];
  // Also without records: a kernel that waits for this one relies on the preceding one too.
  grid_dependency_wait();
  if (head >= call.num_heads || num_records == 0) return;

  float largest = -INFINITY, total = 0, sum[kNumbers] = {};
  for (int begin = 0; begin < num_records; begin += 32) {
    const int count = min(32, num_records - begin);
    float2 mine = make_float2(-INFINITY, 0);
    if (lane < count)
      mine =
          plan.record_weights[static_cast<int64_t>(first + begin + lane) * call.num_heads + head];
    const float fresh = fmaxf(largest, warp_max(mine.x));
    const float shrink = largest == -INFINITY ? 0 : exp2f(largest - fresh);
    const float share = mine.x == -INFINITY ? 0 : exp2f(mine.x - fresh);
    total = total * shrink + warp_sum(share * mine.y);
    largest = fresh;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) sum[i] *= shrink;
    const float* from = plan.record_sums +
                        (static_cast<int64_t>(first + begin) * call.num_heads + head) * kDim +
                        lane * kNumbers;
#pragma unroll 8
    for (int c = 0; c < count; ++c) {
      const float weight = __shfl_sync(0xffffffffU, share, c);
      Floats<kNumbers> x;
      x.load(from + static_cast<int64_t>(c) * call.num_heads * kDim);
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) sum[i] += weight * x.x[i];
    }
  }
  if (call.sinks_N != nullptr) total += sink_weight<T>(call, head, largest);
  T* out = static_cast<T*>(call.out_TC) + (row * call.num_heads + head) * kDim + lane * kNumbers;
  uint32_t packed[kNumbers / 2];
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i)
    packed[i] = pack<T>(sum[2 * i] / total, sum[2 * i + 1] / total);
  if constexpr (kNumbers == 4) {
    *reinterpret_cast<uint2*>(out) = make_uint2(packed[0], packed[1]);
  } else {
    *reinterpret_cast<uint32_t*>(out) = packed[0];
  }
}

template <typename T>
void run(const AttendCall& call, const DecodeArrays& plan, cudaStream_t stream) {
  launch(call.head_dim == 64 ? merge_records_kernel<T, 64> : merge_records_kernel<T, 128>,
         dim3(call.paged.num_sequences, (call.num_heads + kWarps - 1) / kWarps), dim3(32 * kWarps),
         0, stream, call, plan);
}

}  // namespace

void merge_records(const AttendCall& call, const DecodeArrays& plan, cudaStream_t stream) {
  call.number == Number::kBFloat16 ? run<__nv_bfloat16>(call, plan, stream)
                                   : run<__half>(call, plan, stream);
}

}  // namespace slime::kernels::cuda
