#pragma once

/// Sampling extras of a row besides its token: the best tokens, and all logits where a list would
/// be too long to be sorted. Written to locked host memory. By thread blocks of kTruncationThreads.

#include "kernels/cuda/sampling/sample_exact.cuh"

namespace slime::kernels::cuda {

/// Keys and ids: key * 2^32 + id, so that the smallest is the best token, of equal ones the one
/// with the smallest id.
struct TokenList {
  unsigned long long entry[kMostReported];
};

/// Appends the tokens that `is_wanted(logit, id)`, as far as there is room; `size` counts all. A
/// barrier of the thread block at the end.
template <int kChunksInFlight, typename IsWanted>
__device__ void collect(const LogitRow& row, const NearChunks& near, TokenList& list,
                        uint32_t& size, const IsWanted& is_wanted) {
  visit_chunks<kChunksInFlight>(row, near, [&](float x, int v, int) {
    const bool mine = is_wanted(x, v);
    const unsigned wanted = ballot(mine);
    if (wanted == 0) return;
    const unsigned lane = threadIdx.x % 32;
    uint32_t slot = 0;
    if (lane == 0) slot = atomicAdd(&size, static_cast<uint32_t>(__popc(wanted)));
    slot = shuffle(slot, 0) + __popc(wanted & ((1U << lane) - 1));
    if (mine && slot < kMostReported)
      list.entry[slot] =
          static_cast<unsigned long long>(to_key(x)) << 32 | static_cast<uint32_t>(v);
  });
  __syncthreads();
}

/// Bitonic sort, the smallest first.
__device__ inline void sort(TokenList& list, int size) {
  int padded = 1;
  while (padded < size) padded *= 2;
  for (int i = size + static_cast<int>(threadIdx.x); i < padded; i += kTruncationThreads)
    list.entry[i] = ~0ULL;
  for (int run = 2; run <= padded; run *= 2) {
    for (int stride = run / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < padded / 2; i += kTruncationThreads) {
        const int a = 2 * i - (i & (stride - 1)), b = a + stride;
        const unsigned long long first = list.entry[a], second = list.entry[b];
        if ((first > second) == ((a & run) == 0)) {
          list.entry[a] = second;
          list.entry[b] = first;
        }
      }
    }
  }
  __syncthreads();
}

__device__ inline uint32_t key_of(unsigned long long entry) {
  return static_cast<uint32_t>(entry >> 32);
}
__device__ inline int32_t id_of(unsigned long long entry) {
  return static_cast<int32_t>(entry & 0xffffffffU);
}

/// Chunks with a logit of at least the count-th largest chunk maximum, which so many tokens reach;
/// the return value is its key. All chunks, and the key of -infinity, where there are fewer.
__device__ inline uint32_t list_best_chunks(NearChunks& near, const float* chunk_max_C, int chunks,
                                            int count, TruncationScratch& scratch) {
  if (threadIdx.x == 0) {
    near.size = 0;
    scratch.last_key = to_key(-INFINITY);
  }
  __syncthreads();
  for (int c = threadIdx.x; c < chunks && count <= chunks; c += kTruncationThreads) {
    const float mine = chunk_max_C[c];
    int rank = 0;
    for (int other = 0; other < chunks; ++other) {
      const float x = chunk_max_C[other];
      rank += x > mine || (x == mine && other < c) ? 1 : 0;
    }
    if (rank == count - 1) scratch.last_key = to_key(mine);
  }
  __syncthreads();
  const uint32_t last_key = scratch.last_key;
  for (int c = threadIdx.x; c < chunks; c += kTruncationThreads)
    if (to_key(chunk_max_C[c]) <= last_key) near.chunk[atomicAdd(&near.size, 1)] = c;
  __syncthreads();
  return last_key;
}

/// Appends the first `count` tokens, in the order of ids, whose logit has this key. There are so
/// many.
__device__ inline void append_ties(const LogitRow& row, uint32_t key, uint32_t count,
                                   TokenList& list, uint32_t size, TruncationScratch& scratch) {
  constexpr int kPerThread = kSampleChunk / kTruncationThreads;
  uint32_t taken = 0;
  for (int chunk = 0; taken < count && chunk * kSampleChunk < row.vocab; ++chunk) {
    const int begin = chunk * kSampleChunk + static_cast<int>(threadIdx.x) * kPerThread;
    const int end = min(begin + kPerThread, row.vocab);
    MassAndCount mine{0, 0}, total;
    for (int v = begin; v < end; ++v) mine.count += to_key(row.logits_V[v]) == key ? 1 : 0;
    uint32_t slot = taken + sum_before(mine, total, scratch.scan).count;
    for (int v = begin; v < end; ++v) {
      if (to_key(row.logits_V[v]) != key) continue;
      if (slot < count)
        list.entry[size + slot] =
            static_cast<unsigned long long>(key) << 32 | static_cast<uint32_t>(v);
      ++slot;
    }
    taken += total.count;
  }
  __syncthreads();
}

/// The best `count` tokens, at most kMostReported and not more than there are, sorted in work.list.
/// `list_size` is shared memory.
template <typename Workspace>
__device__ void list_best(const LogitRow& row, const float* chunk_max_C, int chunks, int count,
                          uint32_t& list_size, Workspace& work, TruncationScratch& scratch) {
  uint32_t last_key = list_best_chunks(scratch.near, chunk_max_C, chunks, count, scratch);
  const auto collect_until = [&](uint32_t end_key) {  // keys below it
    if (threadIdx.x == 0) list_size = 0;
    __syncthreads();
    // One chunk in flight: chunks that are not there would be tokens of -infinity.
    collect<1>(row, scratch.near, work.list, list_size,
               [&](float x, int v) { return v < row.vocab && to_key(x) < end_key; });
  };
  if (count <= chunks) {
    collect_until(last_key + 1);
    if (list_size <= kMostReported) return sort(work.list, static_cast<int>(list_size));
    __syncthreads();  // all have read the size
  }
  const KeyRange at = find_key(row, {to_key(row.largest), last_key, {0, 0}},
                               static_cast<unsigned long long>(count - 1), true, work, scratch);
  collect_until(at.first);
  append_ties(row, at.first, count - at.before.count, work.list, at.before.count, scratch);
  sort(work.list, count);
}

/// All logits of the row instead of lists.
__device__ inline void hand_over(const LogitRow& row, uint32_t* report) {
  for (int v = threadIdx.x; v < row.vocab; v += kTruncationThreads)
    report[v] = __float_as_uint(row.logits_V[v]);
}

}  // namespace slime::kernels::cuda
