#pragma once

/// A row of logits as the kernels that draw see it.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampling/chunk_sums.cuh"
#include "kernels/cuda/sampling/sample.h"

namespace slime::kernels::cuda {

/// Masses are exp((logit - largest) / temperature) as integers, in units of 2^-40.
constexpr double kMassUnit = 1099511627776.0;

/// `relative` is in [0, 1], and the mass rounded down to an integer. By shifts, because conversions
/// to and from 64 bits are slow.
__device__ inline uint64_t to_mass(float relative) {
  const uint32_t bits = __float_as_uint(relative);
  const uint64_t digits = (bits & 0x7fffffU) | 0x800000U;  // in units of 2^-23 where exponent is 0
  const uint32_t exponent = 127U - (bits >> 23);           // relative = digits * 2^(-23 - exponent)
  return digits << 17 >> min(exponent, 63U);
}

__device__ inline bool has_top_k(const SampleCall& call, int64_t row) {
  return call.top_k_R[row] > 0 && call.top_k_R[row] < call.vocab;
}

__device__ inline bool is_truncated(const SampleCall& call, int64_t row) {
  return has_top_k(call, row) || call.top_p_R[row] < 1.0F || call.min_p_R[row] > 0.0F;
}

/// How far below the largest logit kept tokens can be, in units of the temperature. Farther than 28
/// they have no mass.
__device__ inline double truncation_distance(const SampleCall& call, int64_t row, double total) {
  double distance = 28;
  const double top_p = call.top_p_R[row], min_p = call.min_p_R[row];
  // Tokens less likely than (1 - top_p) / 2 V hold less than half of 1 - top_p together: the kept
  // tokens end before them, and the other half is far more than the sums are rounded by.
  if (top_p < 1 - 1e-4) {
    const double least = 0.5 * (1 - fmax(top_p, 0.0)) / static_cast<double>(call.vocab);
    distance = fmin(distance, -log(least * total));
  }
  if (min_p > 0) distance = fmin(distance, fmax(-log(min_p), 0.0) * 1.01 + 1e-3);
  return distance;
}

/// The row's results. `total`: of exp((logit - largest) / temperature).
__device__ inline void store_token(const SampleCall& call, int64_t row, int32_t token,
                                   float largest, double total) {
  const double logit = call.logits_RV[row * call.vocab + token];
  call.token_R[row] = token;
  call.log_prob_R[row] = log_prob_of(logit, largest, call.temperature_R[row], total);
}

/// Unsigned integers in the order of floats, the largest float first. The two zeros are one.
__device__ inline uint32_t to_key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);
  return bits & 0x80000000U ? bits : ~(bits | 0x80000000U);
}
__device__ inline float from_key(uint32_t key) {
  return __uint_as_float(key & 0x80000000U ? key : ~(key | 0x80000000U));
}

/// A row after its statistics. Its logits are numbers or -infinity, and `largest` is finite.
struct LogitRow {
  const float* logits_V;
  int vocab;
  float largest;
  float temperature;
  float inverse_temperature;
  float buckets_per_logit;

  __device__ uint64_t mass(float x) const {
    return to_mass(expf((x - largest) * inverse_temperature));
  }
  /// How far below the largest, in buckets: its whole part is the bucket. Grows as x falls.
  __device__ float distance(float x) const { return (largest - x) * buckets_per_logit; }
  /// Probability relative to the largest, in the arithmetic of the CPU.
  __device__ double relative(float x) const {
    return exp((static_cast<double>(x) - largest) / temperature);
  }
};

__device__ inline LogitRow logit_row(const SampleCall& call, int64_t row,
                                     const MeasuredRow& measured) {
  const float temperature = call.temperature_R[row];
  return {call.logits_RV + row * call.vocab,
          static_cast<int>(call.vocab),
          measured.largest,
          temperature,
          1.0F / temperature,
          measured.buckets_per_logit};
}

constexpr int kTruncationThreads = 512;  // of thread blocks that work on truncated rows
constexpr int kTruncationWarps = kTruncationThreads / 32;

/// Chunks that have a logit near enough to the largest. In shared memory, in no particular order.
struct NearChunks {
  int size;
  int chunk[kMaxSampleChunks];
};

/// Of the chunks first, first + step, ...: those with a logit nearer than `end` buckets.
__device__ inline void list_near(NearChunks& near, const LogitRow& row, const float* chunk_max_C,
                                 int chunks, int first, int step, float end) {
  if (threadIdx.x == 0) near.size = 0;
  __syncthreads();
  for (int c = first + static_cast<int>(threadIdx.x) * step; c < chunks;
       c += step * kTruncationThreads) {
    if (row.distance(chunk_max_C[c]) < end) near.chunk[atomicAdd(&near.size, 1)] = c;
  }
  __syncthreads();
}

/// visit(logit, id, i) for every token of these chunks; -infinity where a chunk ends early. All
/// lanes of a warp come together. It is the i-th token of the thread's share of the chunk. Loads of
/// `kChunksInFlight` chunks are in flight before the first visit.
template <int kChunksInFlight, typename Visit>
__device__ void visit_chunks(const LogitRow& row, const NearChunks& near, const Visit& visit) {
  constexpr int kPerThread = kSampleChunk / kTruncationThreads;
  for (int i = 0; i < near.size; i += kChunksInFlight) {
    float x[kChunksInFlight][kPerThread];
    int begin[kChunksInFlight];
#pragma unroll
    for (int a = 0; a < kChunksInFlight; ++a) {
      const bool is_there = i + a < near.size;
      begin[a] = (is_there ? near.chunk[i + a] * kSampleChunk : 0) + static_cast<int>(threadIdx.x);
      const int end = is_there ? row.vocab : 0;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const int v = begin[a] + j * kTruncationThreads;
        x[a][j] = v < end ? row.logits_V[v] : -INFINITY;
      }
    }
#pragma unroll
    for (int a = 0; a < kChunksInFlight; ++a) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) visit(x[a][j], begin[a] + j * kTruncationThreads, j);
    }
  }
}

}  // namespace slime::kernels::cuda
