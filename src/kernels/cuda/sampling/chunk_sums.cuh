#pragma once

/// Sums of exponentials of a row of logits, in one order for whoever draws from it and whoever trains on
/// it: in float32 inside of chunks of kSampleChunk logits, each by one thread block, then in double from
/// the first chunk to the last.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampling/sample.h"

namespace slime::kernels::cuda {

inline constexpr int kChunkThreads = 256;
inline constexpr int kChunkPerThread = kSampleChunk / kChunkThreads;

struct Largest {
  float value;
  int32_t index;
};

/// The larger value, of equal ones the smaller index.
__device__ inline Largest larger(Largest a, Largest b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

/// Of the thread block, in every thread. `scratch`: one for each warp.
__device__ inline Largest block_largest(Largest mine, Largest* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Largest other{shuffle_xor(mine.value, offset), shuffle_xor(mine.index, offset)};
    mine = larger(mine, other);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) scratch[warp] = mine;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) mine = larger(mine, scratch[w]);
  return mine;
}

/// Of exp((x - largest) / temperature), over the thread's logits of a chunk.
__device__ inline float sum_of_exponentials(const float (&x)[kChunkPerThread], float largest,
                                            float inverse_temperature) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChunkPerThread; ++i)
    if (x[i] > -INFINITY) sum += expf((x[i] - largest) * inverse_temperature);
  return sum;
}

/// A chunk's sum, relative to the largest logit of the row instead of its own.
__device__ inline double chunk_mass(float chunk_largest, float sum, float largest,
                                    double inverse_temperature) {
  const double shift = exp((static_cast<double>(chunk_largest) - largest) * inverse_temperature);
  return sum == 0 ? 0.0 : sum * shift;
}

/// `total`: of exp((logit - largest) / temperature) over the row.
__device__ inline float log_prob_of(double logit, float largest, float temperature, double total) {
  return static_cast<float>((logit - largest) / temperature - log(total));
}

}  // namespace slime::kernels::cuda
