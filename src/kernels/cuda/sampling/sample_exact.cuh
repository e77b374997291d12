#pragma once

/// Truncation and draw in a row in which too many tokens are about equally likely to be sorted:
/// their order is searched digit by digit in the bits of the logits, then by id. By blocks of
/// kTruncationThreads.

#include "kernels/cuda/sampling/sample_buckets.cuh"

namespace slime::kernels::cuda {

/// Tokens are kept, from the best to the worst, until one is at fault: in the order of logits, ties
/// by id, so many are before it, or more mass than this, or it is not likely enough itself.
struct TruncationLimits {
  uint32_t rank;            // first that is not kept; the largest number: no such limit
  unsigned long long mass;  // most that may be before a kept token; the largest number: no limit
  double min_p;             // least probability relative to the best; 0: no limit
  int min_p_begin;          // bucket: those before it are likely enough,
  int min_p_end;            // those from this one on are not

  __device__ bool excludes(const LogitRow& row, float x, const MassAndCount& before) const {
    return before.count >= rank || before.mass > mass || (min_p > 0 && row.relative(x) < min_p);
  }
};

/// Where the draw falls among the kept tokens: the mass before the sampled token is at most this.
__device__ inline unsigned long long draw_target(double uniform, unsigned long long kept) {
  const auto target = static_cast<unsigned long long>(uniform * static_cast<double>(kept));
  return kept == 0 || target < kept ? target : kept - 1;
}

/// Neighbouring buckets, which hold the end of the kept tokens and the sampled token. With the sums
/// before them, and to their end.
struct BucketRange {
  int begin, end;
  MassAndCount before, to_end;
};

struct TruncationScratch {
  ScanScratch scan;
  NearChunks near;
  uint32_t first_key, last_key;
  uint32_t count_C[kMaxSampleChunks];
  int32_t token;
};

struct KeyRange {
  uint32_t first, last;
  MassAndCount before;
};

/// Keys that occur in these buckets.
__device__ inline KeyRange keys_of(const LogitRow& row, const BucketRange& range,
                                   TruncationScratch& scratch) {
  if (threadIdx.x == 0) {
    scratch.first_key = ~0U;
    scratch.last_key = 0;
  }
  __syncthreads();
  uint32_t first = ~0U, last = 0;
  visit_chunks<2>(row, scratch.near, [&](float x, int, int) {
    const float distance = row.distance(x);
    if (!(distance >= range.begin && distance < range.end)) return;
    first = min(first, to_key(x));
    last = max(last, to_key(x));
  });
  first = reduce_min(first);
  last = reduce_max(last);
  if (threadIdx.x % 32 == 0) {
    atomicMin(&scratch.first_key, first);
    atomicMax(&scratch.last_key, last);
  }
  __syncthreads();
  return {scratch.first_key, scratch.last_key, range.before};
}

/// Narrows `keys` to the one key at which the number of tokens (by_rank) or their mass first
/// exceeds `target`, which it does within `keys`. `work` is shared memory.
template <typename Workspace>
__device__ KeyRange find_key(const LogitRow& row, KeyRange keys, unsigned long long target,
                             bool by_rank, Workspace& work, TruncationScratch& scratch) {
  while (keys.first < keys.last) {
    int shift = 0;
    while ((keys.last - keys.first) >> shift >= kSampleBuckets) ++shift;
    clear(work.buckets);
    __syncthreads();
    BucketFiller filler(work.buckets, true);
    visit_chunks<1>(row, scratch.near, [&](float x, int, int i) {
      const uint32_t key = to_key(x);
      const bool is_in = key >= keys.first && key <= keys.last;
      filler.add(is_in ? static_cast<int>((key - keys.first) >> shift) : -1,
                 is_in ? row.mass(x) : 0, i == 0);
    });
    __syncthreads();
    sum_buckets(work.prefix, scratch.scan, [&](int b) { return work.buckets.at(b); });
    const Prefix& sums = work.prefix;
    const int found = first_bucket([&](int b) {
      return by_rank ? keys.before.count + sums.count[b + 1] > target
                     : keys.before.mass + sums.mass[b + 1] > target;
    });
    keys.before.add(sums.before(found));
    keys.first += static_cast<uint32_t>(found) << shift;
    keys.last = min(keys.last, keys.first + ((1U << shift) - 1));
    __syncthreads();
  }
  return keys;
}

/// The sum of masses of the tokens that are likely enough.
__device__ inline unsigned long long mass_by_min_p(const LogitRow& row, double min_p,
                                                   TruncationScratch& scratch) {
  MassAndCount mine{0, 0}, total;
  visit_chunks<2>(row, scratch.near, [&](float x, int, int) {
    if (row.relative(x) >= min_p) mine.mass += row.mass(x);
  });
  sum_before(mine, total, scratch.scan);
  return total.mass;
}

/// The index-th token, in the order of ids, whose logit has this key.
__device__ inline int32_t token_of_key(const LogitRow& row, uint32_t key, uint32_t index,
                                       TruncationScratch& scratch) {
  for (int c = threadIdx.x; c < kMaxSampleChunks; c += kTruncationThreads) scratch.count_C[c] = 0;
  __syncthreads();
  visit_chunks<2>(row, scratch.near, [&](float x, int v, int) {
    const unsigned same = ballot(to_key(x) == key);
    if (same != 0 && threadIdx.x % 32 == 0)
      atomicAdd(&scratch.count_C[v / kSampleChunk], __popc(same));
  });
  __syncthreads();
  int chunk = 0;
  for (; chunk + 1 < kMaxSampleChunks && index >= scratch.count_C[chunk]; ++chunk)
    index -= scratch.count_C[chunk];
  constexpr int kPerThread = kSampleChunk / kTruncationThreads;
  const int begin = chunk * kSampleChunk + static_cast<int>(threadIdx.x) * kPerThread;
  const int end = min(begin + kPerThread, row.vocab);
  MassAndCount mine{0, 0}, total;
  for (int v = begin; v < end; ++v) mine.count += to_key(row.logits_V[v]) == key ? 1 : 0;
  uint32_t before = sum_before(mine, total, scratch.scan).count;
  if (before <= index && index < before + mine.count) {
    for (int v = begin; v < end; ++v) {
      if (to_key(row.logits_V[v]) == key && before++ == index) scratch.token = v;
    }
  }
  __syncthreads();
  return scratch.token;
}

/// The sampled token, in every thread. `work` is shared memory, free to be written.
template <typename Workspace>
__device__ int32_t draw_by_keys(const LogitRow& row, const BucketRange& range,
                                const TruncationLimits& limits, double uniform, Workspace& work,
                                TruncationScratch& scratch) {
  const KeyRange keys = keys_of(row, range, scratch);
  unsigned long long kept = range.to_end.mass;
  if (limits.rank < range.to_end.count) {
    const KeyRange at = find_key(row, keys, limits.rank, true, work, scratch);
    kept =
        min(kept, at.before.mass + (limits.rank - at.before.count) * row.mass(from_key(at.first)));
  }
  if (limits.mass < range.to_end.mass) {
    const KeyRange at = find_key(row, keys, limits.mass, false, work, scratch);
    const uint64_t each = row.mass(from_key(at.first));
    kept = min(kept, at.before.mass + ((limits.mass - at.before.mass) / each + 1) * each);
  }
  if (limits.min_p_begin < range.end) kept = min(kept, mass_by_min_p(row, limits.min_p, scratch));
  const unsigned long long target = draw_target(uniform, kept);
  const KeyRange at = find_key(row, keys, target, false, work, scratch);
  const uint64_t tie = (target - at.before.mass) / row.mass(from_key(at.first));
  return token_of_key(row, at.first, static_cast<uint32_t>(tie), scratch);
}

}  // namespace slime::kernels::cuda
