#pragma once

/// Penalties, bias and minimum length on a row's logits, in the order and with the roundings of the
/// CPU (engine/sampler.cpp). Lists that another kernel changed are read past the L1 cache.

#include "kernels/cuda/vendor/vendor.cuh"
#include "kernels/gpu/row_extras.h"

namespace slime::kernels::cuda {

__device__ inline TokenCount* counts_of(LogitChanges* changes) {
  return reinterpret_cast<TokenCount*>(changes + 1);
}
__device__ inline const TokenBias* biases_of(LogitChanges* changes) {
  return reinterpret_cast<const TokenBias*>(counts_of(changes) + changes->room);
}
__device__ inline const int32_t* forbidden_of(LogitChanges* changes) {
  return reinterpret_cast<const int32_t*>(biases_of(changes) + changes->num_biases);
}
__device__ inline int2 load_count(const TokenCount* count) {
  return load_past_l1(reinterpret_cast<const int2*>(count));
}

/// Changes the logits of ids in [begin, end). By the whole thread block; ends with a barrier.
__device__ inline void change_logits(LogitChanges* changes, bool forbids, float* logits_V,
                                     int64_t begin, int64_t end) {
  const auto is_mine = [&](int32_t id) { return id >= begin && id < end; };
  const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  const int num_counts = load_past_l1(&changes->num_counts);
  const float repetition = changes->repetition_penalty;
  for (int i = first; i < num_counts; i += step) {
    const int2 sampled = load_count(counts_of(changes) + i);  // id, count
    if (!is_mine(sampled.x)) continue;
    const double of_count = product_rn(changes->frequency_penalty, static_cast<double>(sampled.y));
    const double penalty = sum_rn(of_count, changes->presence_penalty);
    const float x = difference_rn(logits_V[sampled.x], to_float_rn(penalty));
    logits_V[sampled.x] = x > 0 ? quotient_rn(x, repetition) : product_rn(x, repetition);
  }
  __syncthreads();
  const TokenBias* biases = biases_of(changes);
  const int num_biases = changes->num_biases;
  for (int i = first; i < num_biases; i += step) {
    const int32_t id = biases[i].id;
    if (!is_mine(id) || (i > 0 && biases[i - 1].id == id)) continue;
    float x = logits_V[id];
    for (int j = i; j < num_biases && biases[j].id == id; ++j) x = sum_rn(x, biases[j].bias);
    logits_V[id] = x;
  }
  __syncthreads();
  if (!forbids) return;
  const int32_t* forbidden = forbidden_of(changes);
  for (int i = first; i < changes->num_forbidden; i += step)
    if (is_mine(forbidden[i])) logits_V[forbidden[i]] = -INFINITY;
  __syncthreads();
}

/// Makes ids in [begin, end) impossible that are not allowed. By the whole thread block; ends with a barrier.
__device__ inline void mask_logits(const uint32_t* allowed, float* logits_V, int64_t begin,
                                   int64_t end) {
  for (int64_t id = begin + threadIdx.x; id < end; id += blockDim.x)
    if ((allowed[id / 32] >> (id % 32) & 1U) == 0) logits_V[id] = -INFINITY;
  __syncthreads();
}

/// Counts a sampled token. By the whole thread block.
__device__ inline void count_token(LogitChanges* changes, int32_t token) {
  if (changes->room == 0) return;
  const int num_counts = load_past_l1(&changes->num_counts);
  TokenCount* counts = counts_of(changes);
  bool is_new = true;
  for (int i = static_cast<int>(threadIdx.x); i < num_counts; i += static_cast<int>(blockDim.x)) {
    const int2 sampled = load_count(counts + i);
    if (sampled.x != token) continue;
    counts[i].count = sampled.y + 1;
    is_new = false;
  }
  const bool is_appended = __syncthreads_and(is_new) != 0 && num_counts < changes->room;
  if (!is_appended || threadIdx.x > 0) return;
  counts[num_counts] = {token, 1};
  changes->num_counts = num_counts + 1;
}

}  // namespace slime::kernels::cuda
