#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/head_rotation.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;     // heads per block
constexpr int kMaxPairs = 4;  // pairs of numbers per lane: head sizes up to 256

/// One warp per head of a row. A lane holds the pairs (i, i + D / 2) with i = lane, lane + 32, ...
template <typename T>
__global__ void __launch_bounds__(32 * kWarps) norm_rotate_kernel(RotateCall call) {
  launch_dependents();
  const int lane = threadIdx.x % 32;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  const int num_heads = call.num_heads, num_kv_heads = call.num_kv_heads;
  if (head >= num_heads + 2 * num_kv_heads) return;
  const int half = call.head_dim / 2;
  const bool is_query = head < num_heads;
  const bool is_value = head >= num_heads + num_kv_heads;
  const auto* norm = static_cast<const T*>(is_query ? call.q_norm_D : call.k_norm_D);
  grid_dependency_wait();

  const int64_t row = blockIdx.x;
  const int64_t in_row = row * (num_heads + 2 * num_kv_heads) * call.head_dim;
  const T* in = static_cast<const T*>(call.qkv_TE) + in_row + head * call.head_dim;
  T* out = static_cast<T*>(call.out_TE) + in_row + head * call.head_dim;
  __nv_fp8_storage_t* narrow = nullptr;
  if (!is_query && call.slot_T != nullptr) {
    const int kv_head = (head - num_heads) % num_kv_heads;
    const int64_t slot = call.slot_T[row];
    const int64_t offset =
        ((slot / kPageTokens * num_kv_heads + kv_head) * kPageTokens + slot % kPageTokens) *
        call.head_dim;
    void* cache = is_value ? call.values : call.keys;
    out = static_cast<T*>(cache) + offset;
    if (call.is_fp8) narrow = static_cast<__nv_fp8_storage_t*>(cache) + offset;
  }
  float a[kMaxPairs] = {}, b[kMaxPairs] = {};
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    if (i >= half) continue;
    a[p] = to_float(in[i]);
    b[p] = to_float(in[i + half]);
  }
  float scale = 1;
  if (!is_value && norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kMaxPairs; ++p)
      if (32 * p < half) squares += lane_sum<32>(square_sum(a[p], b[p]));
    scale = norm_scale(squares, call.head_dim, call.eps);
  }
  const int64_t position = is_value ? 0 : call.positions_T[row];
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    if (i >= half) continue;
    if (!is_value) {
      if (norm != nullptr) {
        a[p] = normed(a[p], scale, to_float(norm[i]));
        b[p] = normed(b[p], scale, to_float(norm[i + half]));
      }
      rotate_pair(a[p], b[p], call.cos_PR[position * half + i], call.sin_PR[position * half + i]);
    }
    if (narrow != nullptr) {
      narrow[i] = to_fp8(a[p]);
      narrow[i + half] = to_fp8(b[p]);
      continue;
    }
    out[i] = from_float<T>(a[p]);
    out[i + half] = from_float<T>(b[p]);
  }
}

}  // namespace

void norm_rotate(const RotateCall& call, cudaStream_t stream) {
  if (call.head_dim > 64 * kMaxPairs)
    throw std::runtime_error("head sizes above 256 are not supported");
  const int heads = call.num_heads + 2 * call.num_kv_heads;
  const dim3 grid(call.rows, (heads + kWarps - 1) / kWarps);
  with_type(call.number, [&](auto zero) {
    launch(norm_rotate_kernel<decltype(zero)>, grid, dim3(32 * kWarps), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
