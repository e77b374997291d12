#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kMaxPerLane = 8;  // numbers of a head per lane: head sizes up to 256

template <typename T>
__global__ void attend_plain_kernel(AttendCall call, const int64_t* positions_T,
                                    const int32_t* row_sequence_T) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  const int head = blockIdx.y, lane = threadIdx.x, dim = call.head_dim;
  const int kv_head = head / (call.num_heads / call.num_kv_heads);
  const T* q = static_cast<const T*>(call.q) + row * call.row_stride + head * dim;
  const int32_t* pages = call.paged.pages + call.paged.page_starts[row_sequence_T[row]];
  float query[kMaxPerLane], sum[kMaxPerLane] = {};
#pragma unroll
  for (int p = 0; p < kMaxPerLane; ++p)
    query[p] = lane + 32 * p < dim ? to_float(q[lane + 32 * p]) * call.scale : 0.0F;
  float largest = -INFINITY, total = 0;
  const int64_t position = positions_T[row];
  const int64_t first = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
  for (int64_t key = first; key <= position; ++key) {
    const int64_t offset =
        ((static_cast<int64_t>(pages[key / kPageTokens]) * call.num_kv_heads + kv_head) *
             kPageTokens +
         key % kPageTokens) *
        dim;
    const T* k = static_cast<const T*>(call.paged.keys) + offset;
    const T* v = static_cast<const T*>(call.paged.values) + offset;
    float score = 0;
#pragma unroll
    for (int p = 0; p < kMaxPerLane; ++p)
      if (lane + 32 * p < dim) score += query[p] * to_float(k[lane + 32 * p]);
    score = warp_sum(score);
    if (call.cap > 0) score = call.cap * tanhf(score / call.cap);
    const float next = fmaxf(largest, score);
    const float shrink = expf(largest - next), weight = expf(score - next);
    largest = next;
    total = total * shrink + weight;
#pragma unroll
    for (int p = 0; p < kMaxPerLane; ++p)
      if (lane + 32 * p < dim) sum[p] = sum[p] * shrink + weight * to_float(v[lane + 32 * p]);
  }
  if (call.sinks_N != nullptr)
    total += expf(to_float(static_cast<const T*>(call.sinks_N)[head]) - largest);
  T* out = static_cast<T*>(call.out_TC) + (row * call.num_heads + head) * dim;
#pragma unroll
  for (int p = 0; p < kMaxPerLane; ++p)
    if (lane + 32 * p < dim) out[lane + 32 * p] = from_float<T>(sum[p] / total);
}

}  // namespace

void attend_plain(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
                  Stream stream) {
  if (call.head_dim > 32 * kMaxPerLane)
    throw std::runtime_error("head sizes above 256 are not supported");
  with_type(call.number, [&](auto zero) {
    launch(attend_plain_kernel<decltype(zero)>, dim3(call.rows, call.num_heads), dim3(32), 0,
           stream, call, positions_T, row_sequence_T);
  });
}

}  // namespace slime::kernels::cuda
