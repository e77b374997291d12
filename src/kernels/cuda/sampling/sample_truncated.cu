/// Truncated sampling: rows with top-k, top-p or min-p. The kept tokens are a prefix of the list
/// sorted from best to worst, ties by id, and the draw walks along it: only the few buckets that
/// hold the end of that prefix and the drawn token have to be sorted.
///
///   1. Masses by bucket, buckets of equal width in the distance to the largest logit. Several
///      thread blocks per row.
///   2. By one thread block per row: prefix sums over the buckets say which buckets those are.
///      Their tokens are collected, sorted and walked along.

#include <algorithm>

#include "kernels/cuda/sampling/sample_buckets.cuh"
#include "kernels/cuda/sampling/sample_exact.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kMostSorted = 4096;

__global__ void __launch_bounds__(kTruncationThreads, 4)
    fill_buckets_kernel(SampleCall call, int chunks) {
  __shared__ Buckets buckets;
  __shared__ NearChunks near;
  launch_dependents();
  grid_dependency_wait();
  const int64_t index = blockIdx.y;
  const TruncatedRow truncated = call.truncated_R[index];
  if (truncated.buckets_per_logit == 0) return;
  const LogitRow row = logit_row(call, index, truncated);
  const bool by_rank = has_top_k(call, index);
  clear(buckets);
  list_near(near, row, call.chunk_max_RC + index * chunks, chunks, static_cast<int>(blockIdx.x),
            static_cast<int>(gridDim.x), kSampleBuckets);
  BucketFiller filler(buckets, by_rank);
  visit_chunks<1>(row, near, [&](float x, int, int i) {
    const float distance = row.distance(x);
    const bool is_in = distance < kSampleBuckets;
    filler.add(is_in ? static_cast<int>(distance) : -1, is_in ? row.mass(x) : 0, i == 0);
  });
  __syncthreads();
  for (int b = threadIdx.x; b < kSampleBuckets; b += kTruncationThreads) {
    const MassAndCount mine = buckets.at(b);
    if (mine.mass > 0) atomicAdd(&call.bucket_mass_RB[index * kSampleBuckets + b], mine.mass);
    if (mine.count > 0) atomicAdd(&call.bucket_count_RB[index * kSampleBuckets + b], mine.count);
  }
}

__device__ TruncationLimits limits_of(const SampleCall& call, int64_t index, const LogitRow& row,
                                      double total) {
  TruncationLimits limits{~0U, ~0ULL, 0, kSampleBuckets, kSampleBuckets};
  if (has_top_k(call, index)) limits.rank = static_cast<uint32_t>(call.top_k_R[index]);
  if (call.top_p_R[index] < 1.0F) {
    limits.mass = static_cast<unsigned long long>(static_cast<double>(call.top_p_R[index]) *
                                                  (total * kMassUnit));
  }
  if (call.min_p_R[index] > 0.0F) {
    limits.min_p = call.min_p_R[index];
    // Where float32 puts that probability, within a margin far above its rounding.
    constexpr double kMargin = 1.0 / 64;
    const double boundary = fmax(-log(limits.min_p), 0.0) * row.temperature * row.buckets_per_logit;
    limits.min_p_begin = static_cast<int>(fmin(fmax(boundary - kMargin, 0.0), kSampleBuckets));
    limits.min_p_end = static_cast<int>(fmin(boundary + kMargin + 1, kSampleBuckets));
  }
  return limits;
}

/// The buckets to sort: those that the drawn token may be in, wherever the kept prefix ends, and
/// those that the end may be in. Between them may be others, which are left out.
struct SortedBuckets {
  BucketRange all;          // from the first to the last
  int draw_end, end_begin;  // [all.begin, draw_end) and [end_begin, all.end) are sorted
  MassAndCount between;

  __device__ bool has(float distance) const {
    return distance < all.end && distance >= all.begin &&
           (distance < draw_end || distance >= end_begin);
  }
};

__device__ SortedBuckets buckets_to_sort(const Prefix& sums, const TruncationLimits& limits,
                                         double uniform) {
  // No token is kept from `end` on, and all before `begin` are.
  const int end = first_bucket([&](int b) {
    return sums.count[b] >= limits.rank || sums.mass[b] > limits.mass || b >= limits.min_p_end;
  });
  const int begin = min(end, first_bucket([&](int b) {
                          return sums.count[b + 1] > limits.rank ||
                                 sums.mass[b + 1] > limits.mass || b >= limits.min_p_begin;
                        }));
  const unsigned long long least = draw_target(uniform, sums.mass[begin]);
  const unsigned long long most = draw_target(uniform, sums.mass[end]);
  const int draw_begin = first_bucket([&](int b) { return sums.mass[b + 1] > least; });
  const int draw_end = 1 + first_bucket([&](int b) { return sums.mass[b + 1] > most; });
  const int end_begin = max(begin, draw_end);
  return {
      {draw_begin, end, sums.before(draw_begin), sums.before(end)},
      draw_end,
      end_begin,
      {sums.mass[end_begin] - sums.mass[draw_end], sums.count[end_begin] - sums.count[draw_end]}};
}

/// Keys and ids of the tokens in these buckets, as far as there is room. `size` is 0 before, and
/// then how many there are. A barrier of the thread block at the end.
__device__ void collect(const LogitRow& row, const NearChunks& near, const SortedBuckets& buckets,
                        unsigned long long* list, uint32_t& size) {
  visit_chunks<2>(row, near, [&](float x, int v, int) {
    const bool is_wanted = buckets.has(row.distance(x));
    const unsigned wanted = __ballot_sync(0xffffffffU, is_wanted);
    if (wanted == 0) return;
    const unsigned lane = threadIdx.x % 32;
    uint32_t slot = 0;
    if (lane == 0) slot = atomicAdd(&size, static_cast<uint32_t>(__popc(wanted)));
    slot = __shfl_sync(0xffffffffU, slot, 0) + __popc(wanted & ((1U << lane) - 1));
    if (is_wanted && slot < kMostSorted)
      list[slot] = static_cast<unsigned long long>(to_key(x)) << 32 | static_cast<uint32_t>(v);
  });
  __syncthreads();
}

/// Bitonic sort, the smallest first.
__device__ void sort(unsigned long long* list, int size) {
  int padded = 1;
  while (padded < size) padded *= 2;
  for (int i = size + static_cast<int>(threadIdx.x); i < padded; i += kTruncationThreads)
    list[i] = ~0ULL;
  for (int run = 2; run <= padded; run *= 2) {
    for (int stride = run / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < padded / 2; i += kTruncationThreads) {
        const int a = 2 * i - (i & (stride - 1)), b = a + stride;
        const unsigned long long first = list[a], second = list[b];
        if ((first > second) == ((a & run) == 0)) {
          list[a] = second;
          list[b] = first;
        }
      }
    }
  }
  __syncthreads();
}

/// visit(logit, id, what is before it) for the sorted tokens. All lanes of a warp come together;
/// the id is -1 where there is none.
template <typename Visit>
__device__ void walk(const LogitRow& row, const SortedBuckets& buckets,
                     const unsigned long long* list, int size, ScanScratch& scratch,
                     const Visit& visit) {
  MassAndCount begin = buckets.all.before;
  for (int first = 0; first < size; first += kTruncationThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const bool is_there = i < size;
    const float x = is_there ? from_key(static_cast<uint32_t>(list[i] >> 32)) : -INFINITY;
    const MassAndCount mine{is_there ? row.mass(x) : 0, is_there ? 1U : 0U};
    MassAndCount total, before = sum_before(mine, total, scratch);
    before.add(begin);
    if (row.distance(x) >= buckets.draw_end) before.add(buckets.between);
    visit(x, is_there ? static_cast<int32_t>(list[i] & 0xffffffffU) : -1, before);
    begin.add(total);
  }
}

union Workspace {
  Prefix prefix;
  Buckets buckets;
  unsigned long long list[kMostSorted];  // key * 2^32 + id
};

__global__ void __launch_bounds__(kTruncationThreads, 2)
    draw_truncated_kernel(SampleCall call, int chunks) {
  __shared__ Workspace work;
  __shared__ TruncationScratch scratch;
  __shared__ uint32_t list_size;
  __shared__ unsigned long long kept;
  launch_dependents();
  grid_dependency_wait();
  const int64_t index = blockIdx.x;
  const TruncatedRow truncated = call.truncated_R[index];
  if (truncated.buckets_per_logit == 0) return;
  const LogitRow row = logit_row(call, index, truncated);
  const TruncationLimits limits = limits_of(call, index, row, truncated.total);
  const double uniform = call.uniform_R[index];
  sum_buckets(work.prefix, scratch.scan, [&](int b) {
    return MassAndCount{call.bucket_mass_RB[index * kSampleBuckets + b],
                        call.bucket_count_RB[index * kSampleBuckets + b]};
  });
  const SortedBuckets buckets = buckets_to_sort(work.prefix, limits, uniform);
  if (threadIdx.x == 0) {
    list_size = 0;
    kept = buckets.all.to_end.mass;
  }
  // Has a barrier of the thread block: afterwards nobody reads the prefix sums, which the list
  // overlays.
  list_near(scratch.near, row, call.chunk_max_RC + index * chunks, chunks, 0, 1,
            static_cast<float>(buckets.all.end));
  collect(row, scratch.near, buckets, work.list, list_size);
  if (list_size > kMostSorted) {
    const int32_t token = draw_by_keys(row, buckets.all, limits, uniform, work, scratch);
    if (threadIdx.x == 0) store_token(call, index, token, truncated.largest, truncated.total);
    return;
  }
  const auto size = static_cast<int>(list_size);
  sort(work.list, size);
  walk(row, buckets, work.list, size, scratch.scan,
       [&](float x, int32_t token, const MassAndCount& before) {
         const unsigned excluded =
             __ballot_sync(0xffffffffU, token >= 0 && limits.excludes(row, x, before));
         const int lane = threadIdx.x % 32;
         if (lane == __ffs(static_cast<int>(excluded)) - 1) atomicMin(&kept, before.mass);
       });
  __syncthreads();
  const unsigned long long target = draw_target(uniform, kept);
  walk(row, buckets, work.list, size, scratch.scan,
       [&](float x, int32_t token, const MassAndCount& before) {
         if (token >= 0 && before.mass <= target && target < before.mass + row.mass(x))
           store_token(call, index, token, truncated.largest, truncated.total);
       });
}

}  // namespace

void sample_truncated(const SampleCall& call, cudaStream_t stream) {
  constexpr int64_t kWantedBlocks = 512;  // one wave: four on each of 132 multiprocessors
  const int64_t chunks = sample_chunks(call.vocab);
  const int64_t blocks_per_row =
      std::clamp<int64_t>(kWantedBlocks / std::max<int64_t>(call.rows, 1), 1, chunks);
  launch(fill_buckets_kernel, dim3(blocks_per_row, call.rows), dim3(kTruncationThreads), 0, stream,
         call, chunks);
  launch(draw_truncated_kernel, dim3(call.rows), dim3(kTruncationThreads), 0, stream, call, chunks);
}

}  // namespace slime::kernels::cuda
