#pragma once

/// Work distribution of an expert product: the routed tokens in the order of the experts, cut into
/// chunks of rows that are multiplied together. Each thread block makes the list anew, in its
/// shared memory.

#include <cstdint>

#include "core/divide_up.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/products/async_copy.cuh"

namespace slime::kernels::cuda::experts {

/// Rows of one expert: visits [first, first + rows) of the sorted list.
struct Chunk {
  uint16_t expert, first, rows;
};

/// With chunks of 32 rows, or as many as there are rows.
inline constexpr int kMostChunks = kMostExperts + kMostExpertVisits / 32;

struct Work {
  uint16_t first[kMostExperts];  // where an expert's visits begin
  uint16_t visit[kMostExpertVisits];
  Chunk chunk[kMostChunks];
  int num_chunks, num_visited;
};

#ifdef __CUDACC__

/// Bytes of `masks`.
constexpr int mask_bytes(int rows, int experts) { return 4 * experts * ((rows + 31) / 32); }

/// By all kThreads threads of the block, which all make the same list. masks: shared memory, which is
/// free for other uses afterwards, TMA included.
template <int kThreads>
__device__ void list_work(Work& work, uint32_t* masks, const int32_t* expert_V, int rows,
                          int per_token, int experts, int chunk_rows) {
  const int thread = static_cast<int>(threadIdx.x);
  const int visits = rows * per_token, words = (rows + 31) / 32;
  if (rows == 1) {  // nobody to share an expert with
    if (thread < visits) {
      work.visit[thread] = static_cast<uint16_t>(thread);
      work.chunk[thread] = {static_cast<uint16_t>(__ldcg(expert_V + thread)),
                            static_cast<uint16_t>(thread), 1};
    }
    if (thread == 0) work.num_chunks = work.num_visited = visits;
    __syncthreads();
    return;
  }
  // All choices of a thread are asked for at once.
  constexpr int kEach = divide_up(kMostExpertVisits, kThreads);
  int expert[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int v = thread + j * kThreads;
    expert[j] = v < visits ? __ldcg(expert_V + v) : -1;
  }
  // A division by per_token that is exact for all visits.
  const uint32_t inverse = ((1U << 20) + per_token - 1) / per_token;
  const auto row_of = [&](int v) { return static_cast<int>(v * inverse >> 20); };
  // Of each expert a bit for each row: a row visits it at most once.
  for (int i = thread; i < experts * words; i += kThreads) masks[i] = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (expert[j] < 0) continue;
    const int row = row_of(thread + j * kThreads);
    atomicOr(&masks[expert[j] * words + row / 32], 1U << row % 32);
  }
  __syncthreads();
  for (int e = thread; e < experts; e += kThreads) {
    int count = 0;
    for (int w = 0; w < words; ++w) count += __popc(masks[e * words + w]);
    work.first[e] = static_cast<uint16_t>(count);
  }
  __syncthreads();
  if (thread < 32) {
    int first = 0, chunks = 0, visited = 0;
    for (int base = 0; base < experts; base += 32) {
      const int e = base + thread;
      const int count = e < experts ? work.first[e] : 0;
      const int own = count | (count + chunk_rows - 1) / chunk_rows << 16;
      int sum = own;  // of visits, and of chunks in the high half
      for (int offset = 1; offset < 32; offset *= 2) {
        const int below = __shfl_up_sync(0xffffffffU, sum, offset);
        if (thread >= offset) sum += below;
      }
      const int place = first + ((sum - own) & 0xffff);
      int chunk = chunks + ((sum - own) >> 16);
      for (int row = 0; row < count; row += chunk_rows)
        work.chunk[chunk++] = {static_cast<uint16_t>(e), static_cast<uint16_t>(place + row),
                               static_cast<uint16_t>(min(chunk_rows, count - row))};
      if (e < experts) work.first[e] = static_cast<uint16_t>(place);
      const int total = __shfl_sync(0xffffffffU, sum, 31);
      first += total & 0xffff;
      chunks += total >> 16;
      visited += __popc(__ballot_sync(0xffffffffU, count > 0));
    }
    if (thread == 0) work.num_chunks = chunks, work.num_visited = visited;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (expert[j] < 0) continue;
    const int v = thread + j * kThreads, row = row_of(v);
    const uint32_t* mask = masks + expert[j] * words;
    int place = work.first[expert[j]];
    for (int w = 0; w < row / 32; ++w) place += __popc(mask[w]);
    place += __popc(mask[row / 32] & ((1U << row % 32) - 1));
    work.visit[place] = static_cast<uint16_t>(v);
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  fence_async_shared();
#endif
  __syncthreads();
}

#endif

}  // namespace slime::kernels::cuda::experts
