#pragma once

/// Masses and numbers of a row's tokens by bucket, best bucket first, and their running sums.
/// By thread blocks of kTruncationThreads.

#include "kernels/cuda/sampling/sample_row.cuh"

namespace slime::kernels::cuda {

struct MassAndCount {
  unsigned long long mass;
  uint32_t count;

  __device__ void add(const MassAndCount& other) {
    mass += other.mass;
    count += other.count;
  }
};

/// In shared memory. A mass is high * 2^32 + low: shared memory adds 32 bits at a time.
struct Buckets {
  uint32_t low[kSampleBuckets], high[kSampleBuckets], count[kSampleBuckets];

  __device__ MassAndCount at(int b) const {
    return {static_cast<unsigned long long>(high[b]) << 32 | low[b], count[b]};
  }
};

__device__ inline void clear(Buckets& buckets) {
  for (int b = threadIdx.x; b < kSampleBuckets; b += kTruncationThreads) {
    buckets.low[b] = 0;
    buckets.high[b] = 0;
    buckets.count[b] = 0;
  }
}

/// Puts the tokens of a thread, one by one, into buckets. Atomics on one address are serialised;
/// so where many lanes of a warp have the same bucket (flat logits), one adds for all of them.
class BucketFiller {
 public:
  /// Without `counts` only the masses are added.
  __device__ BucketFiller(Buckets& to, bool counts) : to_(to), counts_(counts) {}

  /// By whole warps; bucket -1: the lane has no token. Whether many lanes go together is looked at
  /// for every first token of some (`is_first`).
  __device__ void add(int bucket, uint64_t mass, bool is_first) {
    if (is_first) is_crowded_ = __popc(peers_of_one(bucket)) >= kMany;
    uint32_t count = 1;
    if (is_crowded_ && join_peers(bucket, mass, count)) return;
    if (bucket < 0) return;
    const auto low = static_cast<uint32_t>(mass);
    auto high = static_cast<uint32_t>(mass >> 32);
    const uint32_t before = atomicAdd(&to_.low[bucket], low);
    if (before + low < before) ++high;  // the carry
    if (high > 0) atomicAdd(&to_.high[bucket], high);
    if (counts_) atomicAdd(&to_.count[bucket], count);
  }

 private:
  static constexpr int kMany = 8;

  /// Lanes with the bucket of the first lane that has one.
  static __device__ unsigned peers_of_one(int bucket) {
    const unsigned having = ballot(bucket >= 0);
    if (having == 0) return 0;
    const int one = shuffle(bucket, __ffs(static_cast<int>(having)) - 1);
    return ballot(bucket == one);
  }

  /// The first of these peers gets the sums over all of them. True: another lane has this token
  /// now.
  static __device__ bool join_peers(int bucket, uint64_t& mass, uint32_t& count) {
    const unsigned peers = peers_of_one(bucket);
    const int lane = threadIdx.x % 32;
    const bool is_peer = (peers >> lane & 1U) != 0;
    // A mass has 41 bits: in two halves, so that 32 of them can be added in 32 bits.
    const auto lower = static_cast<uint32_t>(mass) & 0xfffffU;
    const auto upper = static_cast<uint32_t>(mass >> 20);
    const uint64_t lower_sum = reduce_add(is_peer ? lower : 0U);
    const uint64_t upper_sum = reduce_add(is_peer ? upper : 0U);
    if (!is_peer) return false;
    mass = lower_sum + (upper_sum << 20);
    count = __popc(peers);
    return lane != __ffs(static_cast<int>(peers)) - 1;
  }

  Buckets& to_;
  const bool counts_;
  bool is_crowded_ = false;
};

/// Of one number per warp; in shared memory.
struct ScanScratch {
  MassAndCount warp[kTruncationWarps];
};

/// The sum over the threads before this one; `total`: over all. No thread returns before all have
/// called.
__device__ inline MassAndCount sum_before(const MassAndCount& mine, MassAndCount& total,
                                          ScanScratch& scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  MassAndCount reached = mine;
  for (int offset = 1; offset < 32; offset *= 2) {
    const MassAndCount other{shuffle_up(reached.mass, offset), shuffle_up(reached.count, offset)};
    if (lane >= offset) reached.add(other);
  }
  if (lane == 31) scratch.warp[warp] = reached;
  __syncthreads();
  MassAndCount before{reached.mass - mine.mass, reached.count - mine.count};
  total = {0, 0};
  for (int w = 0; w < kTruncationWarps; ++w) {
    if (w == warp) before.add(total);
    total.add(scratch.warp[w]);
  }
  __syncthreads();
  return before;
}

/// Sums over the buckets before each bucket, and over all of them in the last element. In shared
/// memory.
struct Prefix {
  unsigned long long mass[kSampleBuckets + 1];
  uint32_t count[kSampleBuckets + 1];

  __device__ MassAndCount before(int b) const { return {mass[b], count[b]}; }
};

/// `load(b)` gives a bucket. `out` may alias them.
template <typename Load>
__device__ void sum_buckets(Prefix& out, ScanScratch& scratch, const Load& load) {
  constexpr int kOwn = (kSampleBuckets + kTruncationThreads - 1) / kTruncationThreads;
  const int first = static_cast<int>(threadIdx.x) * kOwn;
  MassAndCount own[kOwn], mine{0, 0}, total;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own[i] = first + i < kSampleBuckets ? load(first + i) : MassAndCount{0, 0};
    mine.add(own[i]);
  }
  MassAndCount before = sum_before(mine, total, scratch);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (first + i < kSampleBuckets) {
      out.mass[first + i] = before.mass;
      out.count[first + i] = before.count;
    }
    before.add(own[i]);
  }
  if (threadIdx.x == 0) {
    out.mass[kSampleBuckets] = total.mass;
    out.count[kSampleBuckets] = total.count;
  }
  __syncthreads();
}

/// The first bucket of which this is true, when it is so of all after it; kSampleBuckets for none.
template <typename IsReached>
__device__ int first_bucket(const IsReached& is_reached) {
  int begin = 0, end = kSampleBuckets;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (is_reached(middle)) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

}  // namespace slime::kernels::cuda
