#pragma once

/// Shared memory of a thread block of the decode attention kernel, and its epilogue: the reduction
/// of the warps' partial softmaxes to the results of a segment.

#include "kernels/cuda/attention/sink_weight.cuh"
#include "kernels/cuda/attention/step_heads.cuh"

namespace slime::kernels::cuda::decode {

/// A warp's heads at the beginning of a segment, and its result at the end.
template <typename T, typename Kv, int kDim>
union alignas(16) WarpMemory {
  StepRows<T, Kv, kDim> step;
  float sums[kSetRows][kDim + 4];
  static_assert(sizeof(step) <= sizeof(sums));
};

/// Where a row of a segment goes: head index in the output, or among the records.
struct Result {
  int64_t head;
  float scale;  // 0: a record
};

template <typename T, typename Kv, int kDim>
struct BlockMemory {
  WarpMemory<T, Kv, kDim> warps[kWarps];
  // Of each row of a warp, with its sums: the largest score and the sum of weights.
  float largest[kWarps][kSetRows], weight[kWarps][kSetRows];
  Result results[kMostDecodeRows];
};

/// Adds up the warps and writes the segment's results or records; all warps' sums are there.
template <typename T, typename Kv, int kDim>
__device__ void write_results(const Arguments& arguments, BlockMemory<T, Kv, kDim>& memory,
                              const Share& share, int kv_head) {
  const AttendCall& call = arguments.call;
  if (static_cast<int>(threadIdx.x) < share.num_rows) {
    const int r = threadIdx.x, set_row = r % kSetRows;
    float most = -INFINITY, total = 0;
    for (int w = r / kSetRows; w < kWarps; w += share.sets)
      most = fmaxf(most, memory.largest[w][set_row]);
    for (int w = r / kSetRows; w < kWarps; w += share.sets) {
      float& factor = memory.largest[w][set_row];
      factor = factor == -INFINITY ? 0 : exp2f(factor - most);
      total += factor * memory.weight[w][set_row];
    }
    const int m = r / arguments.group, head = kv_head * arguments.group + r - m * arguments.group;
    const DecodeMember member = Block(arguments).member(share.segment.first_member + m);
    Result& result = memory.results[r];
    // Records are merged later, and the sink with them.
    const bool has_sink = member.record < 0 && call.sinks_N != nullptr;
    const float all = has_sink ? total + sink_weight<T>(call, head, most) : total;
    result.scale = member.record < 0 ? 1 / all : 0;
    result.head =
        (member.record < 0 ? member.row : member.record) * static_cast<int64_t>(call.num_heads) +
        head;
    if (member.record >= 0) arguments.plan.record_weights[result.head] = {most, total};
  }
  __syncthreads();
  constexpr int kPacks = kDim / 4;
  for (int i = threadIdx.x; i < share.num_rows * kPacks; i += blockDim.x) {
    const int r = i / kPacks, dim = i % kPacks * 4, set_row = r % kSetRows;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int w = r / kSetRows; w < kWarps; w += share.sets) {
      const float factor = memory.largest[w][set_row];
      const float4 x = *reinterpret_cast<const float4*>(&memory.warps[w].sums[set_row][dim]);
      sum = make_float4(sum.x + factor * x.x, sum.y + factor * x.y, sum.z + factor * x.z,
                        sum.w + factor * x.w);
    }
    const float scale = memory.results[r].scale;
    const int64_t at = memory.results[r].head * kDim + dim;
    if (scale == 0) {
      *reinterpret_cast<float4*>(arguments.plan.record_sums + at) = sum;
    } else {
      *reinterpret_cast<uint2*>(static_cast<T*>(call.out_TC) + at) =
          make_uint2(pack<T>(sum.x * scale, sum.y * scale), pack<T>(sum.z * scale, sum.w * scale));
    }
  }
}

}  // namespace slime::kernels::cuda::decode
