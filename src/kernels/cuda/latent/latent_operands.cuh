#pragma once

/// Matrices of shared memory as operands of `mma`, and the merge of partial results.

#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::latent {

#if SLIME_HAS_DECODE

/// Where a lane's line is of [16, 16] numbers at `first`: as operand a, rows by numbers, through load_matrices(); as
/// two operands b side by side, inputs by outputs as memory has them, through load_turned(), the first in registers 0
/// and 1, the second in 2 and 3.
__device__ inline SharedAddress line_of_sixteen(SharedAddress first, int pitch_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return first + (lane % 16) * pitch_bytes + 16 * (lane / 16);
}

/// Of the chosen tokens of a row, how many a unit has at most: whole stages of attention's pipeline.
__device__ inline int chosen_of_unit(const ChosenTokens& chosen, int count) {
  constexpr int kStageKeys = 32;
  const int stages = (count + kStageKeys - 1) / kStageKeys;
  return (stages + chosen.units - 1) / chosen.units * kStageKeys;
}
__device__ inline int chosen_of_row(const ChosenTokens& chosen, int64_t row) {
  return static_cast<int>(min(chosen.positions_T[row] + 1, static_cast<int64_t>(chosen.most)));
}

/// The first record of a row, and how many it has. They depend on what the host has sent, not on kernels
/// before this one.
__device__ inline int2 records_of(const DecodeArrays& plan, const ChosenTokens& chosen,
                                  int64_t row) {
  if (chosen.slot_TC == nullptr) {
    const int first = plan.record_starts[row];
    return make_int2(first, plan.record_starts[row + 1] - first);
  }
  const int count = chosen_of_row(chosen, row), of_unit = chosen_of_unit(chosen, count);
  const int units = (count + of_unit - 1) / of_unit;
  return make_int2(static_cast<int>(row) * chosen.units, units > 1 ? units : 0);
}

/// Four numbers of the attended latent of a row and head, from its records [first, first + count), by
/// whole warps: a lane has the weight of every 32nd record. Records pass through shared memory, kStaged
/// at once, since all loads are then in flight together: 16 bytes of a record at `staging`, those of the
/// next one `stride` further. Each thread reads back what it copied itself.
template <int kStaged>
__device__ float4 merged_four(const DecodeArrays& plan, int num_heads, int first, int count,
                              int head, int four, SharedAddress staging, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(first) * num_heads + head;
  const float2* weights = plan.record_weights + row;
  const float* sums = plan.record_sums + row * kLatentRank + 4 * four;
  const int64_t record = static_cast<int64_t>(num_heads) * kLatentRank;
  float largest = -INFINITY, total = 0;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int begin = 0; begin < count; begin += kStaged) {
    const int here = min(kStaged, count - begin);
    for (int r = 0; r < here; ++r)
      copy_piece(staging + r * stride, sums + (begin + r) * record, 16);
    float2 weight = make_float2(-INFINITY, 0);
    if (lane < here)
      weight = load_past_l1(weights + static_cast<int64_t>(begin + lane) * num_heads);
    float fresh = fmaxf(largest, weight.x);
    for (int offset = 16; offset > 0; offset /= 2) fresh = fmaxf(fresh, shuffle_xor(fresh, offset));
    const float shrink = exp2f(largest - fresh), share = exp2f(weight.x - fresh);
    largest = fresh;
    total = total * shrink + warp_sum(share * weight.y);
    sum.x *= shrink, sum.y *= shrink, sum.z *= shrink, sum.w *= shrink;
    wait_for_pieces();
#pragma unroll 4
    for (int r = 0; r < here; ++r) {
      const float4 x = load_shared(staging + r * stride);
      const float its = shuffle(share, r);
      sum.x += its * x.x, sum.y += its * x.y, sum.z += its * x.z, sum.w += its * x.w;
    }
  }
  const float scale = 1 / total;
  return make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale);
}

#endif

}  // namespace slime::kernels::cuda::latent
