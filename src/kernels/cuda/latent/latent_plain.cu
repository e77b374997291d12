#include "kernels/cuda/latent/latent.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kMaxPerLane = 24;  // numbers of a row per lane: up to 768

/// The slow twin: a warp for each row and head, key by key.
template <typename T>
__global__ void attend_latent_plain_kernel(const LatentAttend call) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  const int head = blockIdx.y, lane = threadIdx.x, size = call.rank + call.rotary_dim;
  const T* q = static_cast<const T*>(call.q_TNE) + (row * call.num_heads + head) * size;
  const int32_t* pages = call.paged.pages + call.paged.page_starts[call.row_sequence_T[row]];
  float query[kMaxPerLane], sum[kMaxPerLane] = {};
#pragma unroll
  for (int p = 0; p < kMaxPerLane; ++p)
    query[p] = lane + 32 * p < size ? to_float(q[lane + 32 * p]) * call.scale : 0.0F;
  float largest = -INFINITY, total = 0;
  for (int64_t key = 0; key <= call.positions_T[row]; ++key) {
    const T* x = static_cast<const T*>(call.rows) +
                 (int64_t{pages[key / kPageTokens]} * kPageTokens + key % kPageTokens) * size;
    float number[kMaxPerLane], score = 0;
#pragma unroll
    for (int p = 0; p < kMaxPerLane; ++p) {
      number[p] = lane + 32 * p < size ? to_float(x[lane + 32 * p]) : 0.0F;
      score += query[p] * number[p];
    }
    score = warp_sum(score);
    const float next = fmaxf(largest, score);
    const float shrink = expf(largest - next), weight = expf(score - next);
    largest = next;
    total = total * shrink + weight;
#pragma unroll
    for (int p = 0; p < kMaxPerLane; ++p) sum[p] = sum[p] * shrink + weight * number[p];
  }
  T* out = static_cast<T*>(call.out_TNL) + (row * call.num_heads + head) * call.rank;
#pragma unroll
  for (int p = 0; p < kMaxPerLane; ++p) {
    const int at = lane + 32 * p;
    if (at >= call.rotary_dim && at < size)
      out[at - call.rotary_dim] = from_float<T>(sum[p] / total);
  }
}

}  // namespace

void attend_latent_plain(const LatentAttend& call, Stream stream) {
  if (call.rank + call.rotary_dim > 32 * kMaxPerLane)
    throw std::runtime_error("latents with their rotating keys have at most 768 numbers");
  with_type(call.number, [&](auto zero) {
    launch(attend_latent_plain_kernel<decltype(zero)>, dim3(call.num_rows, call.num_heads),
           dim3(32), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
