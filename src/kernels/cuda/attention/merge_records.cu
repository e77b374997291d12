#include "core/divide_up.h"
#include "kernels/cuda/attention/sink_weight.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda {
namespace {

/// Of few sequences records are many, of many few.
constexpr int kFewSequences = 8;

__device__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, shuffle_xor(x, offset));
  return x;
}

/// 2 or 4 floats that are loaded together.
template <int kCount>
struct alignas(4 * kCount) Floats {
  float x[kCount];
};

/// A warp merges the records of a sequence for one query head. They pass through shared memory,
/// kStaged at once, so that all loads are in flight together.
template <typename T, int kDim, int kWarps, int kStaged>
__global__ void __launch_bounds__(32 * kWarps)
    merge_records_kernel(AttendCall call, DecodeArrays plan) {
#if SLIME_HAS_PIECES
  constexpr int kNumbers = kDim / 32;  // of a lane
  __shared__ __align__(16) float staging[kWarps][kStaged][kDim];
  launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int sequence = blockIdx.x, head = blockIdx.y * kWarps + warp;
  const int first = plan.record_starts[sequence];
  const int num_records = plan.record_starts[sequence + 1] - first;
  const int64_t row = call.paged.query_starts[sequence];
  // Also without records: a kernel that waits for this one relies on the preceding one too.
  grid_dependency_wait();
  if (head >= call.num_heads || num_records == 0) return;

  float largest = -INFINITY, total = 0, sum[kNumbers] = {};
  for (int begin = 0; begin < num_records; begin += kStaged) {
    const int count = min(kStaged, num_records - begin);
    const float* from =
        plan.record_sums + (static_cast<int64_t>(first + begin) * call.num_heads + head) * kDim;
    sync_lanes();  // nobody still reads the records before
    if (lane < kDim / 4)
      for (int c = 0; c < count; ++c)
        copy_piece(shared_address(staging[warp][c] + 4 * lane),
                   from + static_cast<int64_t>(c) * call.num_heads * kDim + 4 * lane, 16);
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
    wait_for_pieces();
    sync_lanes();
#pragma unroll 4
    for (int c = 0; c < count; ++c) {
      const float weight = shuffle(share, c);
      const auto& x = reinterpret_cast<const Floats<kNumbers>*>(staging[warp][c])[lane];
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
#endif
}

template <typename T, int kDim, int kWarps, int kStaged>
void run_with(const AttendCall& call, const DecodeArrays& plan, Stream stream) {
  launch(merge_records_kernel<T, kDim, kWarps, kStaged>,
         dim3(call.paged.num_sequences, divide_up(call.num_heads, kWarps)), dim3(32 * kWarps), 0,
         stream, call, plan);
}

template <typename T, int kDim>
void run(const AttendCall& call, const DecodeArrays& plan, Stream stream) {
  call.paged.num_sequences <= kFewSequences ? run_with<T, kDim, 4, 20>(call, plan, stream)
                                            : run_with<T, kDim, 8, 4>(call, plan, stream);
}

template <typename T>
void run(const AttendCall& call, const DecodeArrays& plan, Stream stream) {
  call.head_dim == 64 ? run<T, 64>(call, plan, stream) : run<T, 128>(call, plan, stream);
}

}  // namespace

void merge_records(const AttendCall& call, const DecodeArrays& plan, Stream stream) {
  call.number == Number::kBFloat16 ? run<BFloat16>(call, plan, stream)
                                   : run<Float16>(call, plan, stream);
}

}  // namespace slime::kernels::cuda
