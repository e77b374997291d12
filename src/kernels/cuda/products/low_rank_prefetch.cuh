#pragma once

/// Factors that adapters add to a product (LowRankAddition), brought into caches before its epilogue reads them.

#include "kernels/cuda/products/low_rank_addition.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// visit(line) for each 32 of the factors' numbers of an output, and how many they are: output_of(i) for i < count, -1:
/// there is none. By `threads`, of which this is number `thread`.
template <typename OutputOf, typename Visit>
__device__ inline void for_each_line(const LowRankAddition& call, int count, int thread,
                                     int threads, const OutputOf& output_of, const Visit& visit) {
  if (call.h_TR == nullptr) return;
  for_each_adapter(call, nullptr, [&](const LowRankFactors& factors, auto) {
    for (int i = thread; i < count; i += threads) {
      const int output = output_of(i);
      if (output < 0) continue;
      for (int which = 0; which < factors.count; ++which) {
        const LowRankFactor& factor = factors.of[which];
        const int from_begin = output + call.first_output - factor.begin;
        if (from_begin < 0 || output + call.first_output >= factor.end) continue;
        const float* line = factor.values + from_begin * factor.pitch;
        constexpr int kLine = 32;  // floats
        for (int rank = 0; rank < factor.rank; rank += kLine)
          visit(line + rank, min(kLine, factor.rank - rank));
      }
    }
  });
}

/// Brings the factors of outputs into the second-level cache.
template <typename OutputOf>
__device__ inline void prefetch_addition(const LowRankAddition& call, int count, int thread,
                                         int threads, const OutputOf& output_of) {
  for_each_line(call, count, thread, threads, output_of,
                [](const float* line, int) { prefetch_to_l2(line); });
}

/// Brings them into this multiprocessor's first-level cache, of which the pipelines use nothing, and waits for them. For
/// warps with nothing else to do, on behalf of those whose loads would wait for each other.
template <typename OutputOf>
__device__ inline void touch_addition(const LowRankAddition& call, int count, int thread,
                                      int threads, const OutputOf& output_of) {
  for_each_line(call, count, thread, threads, output_of, [](const float* line, int ranks) {
    constexpr int kSector = 8, kSectors = 4;  // floats
    uint32_t bits[kSectors];
#pragma unroll
    for (int i = 0; i < kSectors; ++i)
      asm volatile("ld.global.nc.L1::evict_last.u32 %0, [%1];"
                   : "=r"(bits[i])
                   : "l"(line + min(kSector * i, ranks - 1)));
    // A use of all four, so that they have registers of their own and are in flight at once. It does nothing.
    if ((bits[0] & bits[1] & bits[2] & bits[3]) == kNotMade) prefetch_to_l2(line);
  });
}

#endif

}  // namespace slime::kernels::cuda
