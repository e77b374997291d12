/// Truncated sampling: rows with top-k, top-p or min-p. The kept tokens are a prefix of the list
/// sorted from best to worst, ties by id, and the draw walks along it: only the few buckets that
/// hold the end of that prefix and the sampled token have to be sorted.
///
///   1. Masses by bucket, buckets of equal width in the distance to the largest logit. Several
///      thread blocks per row.
///   2. By one thread block per row: prefix sums over the buckets say which buckets those are.
///      Their tokens are collected, sorted and walked along.
///
/// The same thread block then does what the row wants beside its token (kernels/gpu/row_extras.h).

#include <algorithm>

#include "kernels/cuda/sampling/logit_changes.cuh"
#include "kernels/cuda/sampling/row_report.cuh"

namespace slime::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kTruncationThreads, 4)
    fill_buckets_kernel(SampleCall call, int chunks) {
  __shared__ Buckets buckets;
  __shared__ NearChunks near;
  launch_dependents();
  grid_dependency_wait();
  const int64_t index = blockIdx.y;
  const MeasuredRow measured = call.measured_R[index];
  if (measured.buckets_per_logit == 0) return;
  const LogitRow row = logit_row(call, index, measured);
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

/// The buckets to sort: those that the sampled token may be in, wherever the kept prefix ends, and
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

/// `lists_kept`: all kept tokens are sorted.
__device__ SortedBuckets buckets_to_sort(const Prefix& sums, const TruncationLimits& limits,
                                         double uniform, bool lists_kept) {
  // No token is kept from `end` on, and all before `begin` are.
  const int end = first_bucket([&](int b) {
    return sums.count[b] >= limits.rank || sums.mass[b] > limits.mass || b >= limits.min_p_end;
  });
  const int begin = min(end, first_bucket([&](int b) {
                          return sums.count[b + 1] > limits.rank ||
                                 sums.mass[b + 1] > limits.mass || b >= limits.min_p_begin;
                        }));
  if (lists_kept) return {{0, end, {0, 0}, sums.before(end)}, end, end, {0, 0}};
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

/// visit(logit, id, what is before it) for the sorted tokens. All lanes of a warp come together;
/// the id is -1 where there is none.
template <typename Visit>
__device__ void walk(const LogitRow& row, const SortedBuckets& buckets, const TokenList& list,
                     int size, ScanScratch& scratch, const Visit& visit) {
  MassAndCount begin = buckets.all.before;
  for (int first = 0; first < size; first += kTruncationThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const bool is_there = i < size;
    const float x = is_there ? from_key(key_of(list.entry[i])) : -INFINITY;
    const MassAndCount mine{is_there ? row.mass(x) : 0, is_there ? 1U : 0U};
    MassAndCount total, before = sum_before(mine, total, scratch);
    before.add(begin);
    if (row.distance(x) >= buckets.draw_end) before.add(buckets.between);
    visit(x, is_there ? id_of(list.entry[i]) : -1, before);
    begin.add(total);
  }
}

union Workspace {
  Prefix prefix;
  Buckets buckets;
  TokenList list;
};

/// Shared memory of a row's last kernel.
struct RowScratch {
  Workspace work;
  TruncationScratch truncation;
  uint32_t list_size;
  uint32_t num_kept;
  unsigned long long kept;  // mass
};

/// Draws in a truncated row. `kept_ids`: where its kept ids go, and with `keeps_log_probs` their log-probs
/// kMostReported words behind, or null. How many these are, or kHandedOver where they are more than can be
/// sorted or than the buckets hold.
__device__ int32_t draw_truncated(const SampleCall& call, int64_t index, const LogitRow& row,
                                  double total, int chunks, uint32_t* kept_ids,
                                  bool keeps_log_probs, RowScratch& scratch) {
  Workspace& work = scratch.work;
  const TruncationLimits limits = limits_of(call, index, row, total);
  const double uniform = call.uniform_R[index];
  sum_buckets(work.prefix, scratch.truncation.scan, [&](int b) {
    return MassAndCount{call.bucket_mass_RB[index * kSampleBuckets + b],
                        call.bucket_count_RB[index * kSampleBuckets + b]};
  });
  const SortedBuckets buckets = buckets_to_sort(work.prefix, limits, uniform, kept_ids != nullptr);
  if (threadIdx.x == 0) {
    scratch.list_size = 0;
    scratch.num_kept = ~0U;
    scratch.kept = buckets.all.to_end.mass;
  }
  // Has a barrier of the thread block: afterwards nobody reads the prefix sums, which the list
  // overlays.
  list_near(scratch.truncation.near, row, call.chunk_max_RC + index * chunks, chunks, 0, 1,
            static_cast<float>(buckets.all.end));
  collect<2>(row, scratch.truncation.near, work.list, scratch.list_size,
             [&](float x, int) { return buckets.has(row.distance(x)); });
  if (scratch.list_size > kMostReported) {
    const int32_t token = draw_by_keys(row, buckets.all, limits, uniform, work, scratch.truncation);
    if (threadIdx.x == 0) store_token(call, index, token, row.largest, total);
    return kHandedOver;
  }
  const auto size = static_cast<int>(scratch.list_size);
  sort(work.list, size);
  walk(row, buckets, work.list, size, scratch.truncation.scan,
       [&](float x, int32_t token, const MassAndCount& before) {
         const unsigned excluded = ballot(token >= 0 && limits.excludes(row, x, before));
         const int lane = threadIdx.x % 32;
         if (lane != __ffs(static_cast<int>(excluded)) - 1) return;
         atomicMin(&scratch.kept, before.mass);
         atomicMin(&scratch.num_kept, before.count);
       });
  __syncthreads();
  const unsigned long long kept = scratch.kept;
  const unsigned long long target = draw_target(uniform, kept);
  // The log-prob is of the full distribution, or of the kept tokens where these are reported.
  const double all = kept_ids == nullptr ? total : static_cast<double>(kept) / kMassUnit;
  walk(row, buckets, work.list, size, scratch.truncation.scan,
       [&](float x, int32_t token, const MassAndCount& before) {
         if (token >= 0 && before.mass <= target && target < before.mass + row.mass(x))
           store_token(call, index, token, row.largest, all);
       });
  if (kept_ids == nullptr) return 0;
  const bool is_whole = scratch.num_kept != ~0U || buckets.all.end < kSampleBuckets ||
                        truncation_distance(call, index, total) < 28;
  if (!is_whole) return kHandedOver;
  const int num_kept = min(size, static_cast<int>(min(scratch.num_kept, 0x7fffffffU)));
  for (int i = threadIdx.x; i < num_kept; i += kTruncationThreads)
    kept_ids[i] = static_cast<uint32_t>(id_of(work.list.entry[i]));
  if (keeps_log_probs) {
    const double log_all = log(all);
    for (int i = threadIdx.x; i < num_kept; i += kTruncationThreads) {
      const double x = from_key(key_of(work.list.entry[i]));
      const double shifted = (x - row.largest) / row.temperature;
      kept_ids[kMostReported + i] = __float_as_uint(static_cast<float>(shifted - log_all));
    }
  }
  return num_kept;
}

/// The best tokens, as pairs of a log-prob and an id. Impossible ones end the list.
__device__ void report_best(const SampleCall& call, int64_t index, const LogitRow& row,
                            const MeasuredRow& measured, int chunks, int count, uint32_t* report,
                            RowScratch& scratch) {
  const double log_total = log(measured.total);
  const auto store = [&](int i, float x, int32_t id) {
    const double shifted = (static_cast<double>(x) - row.largest) / row.temperature;
    report[2 * i] = __float_as_uint(static_cast<float>(shifted - log_total));
    report[2 * i + 1] = static_cast<uint32_t>(x == -INFINITY ? -1 : id);
  };
  if (count == 1) {
    if (threadIdx.x == 0) store(0, row.largest, measured.largest_id);
    return;
  }
  list_best(row, call.chunk_max_RC + index * chunks, chunks, count, scratch.list_size, scratch.work,
            scratch.truncation);
  for (int i = threadIdx.x; i < count; i += kTruncationThreads) {
    const unsigned long long entry = scratch.work.list.entry[i];
    store(i, from_key(key_of(entry)), id_of(entry));
  }
}

__global__ void __launch_bounds__(kTruncationThreads, 2)
    finish_rows_kernel(SampleCall call, int chunks) {
  __shared__ RowScratch scratch;
  launch_dependents();
  grid_dependency_wait();
  const int64_t index = blockIdx.x;
  const MeasuredRow measured = call.measured_R[index];
  const RowExtras extras = call.extras_R == nullptr ? RowExtras{} : call.extras_R[index];
  const bool is_truncated = measured.buckets_per_logit != 0;
  const bool is_plain = extras.changes == nullptr && extras.report == nullptr;
  if (!is_truncated && is_plain) return;
  const LogitRow row = logit_row(call, index, measured);
  const bool is_number = measured.total > 0 && !isinf(measured.total);
  const int num_top = min(extras.num_top, row.vocab);
  // Where truncation is not one in float32 the host has to look at the logits.
  int32_t num_kept = extras.keeps_ids != 0 ? kHandedOver : 0;
  if (is_truncated) {
    num_kept = draw_truncated(call, index, row, measured.total, chunks,
                              extras.keeps_ids != 0 ? extras.report + 2 * num_top : nullptr,
                              extras.keeps_log_probs != 0, scratch);
    if (extras.keeps_ids == 0) num_kept = 0;
  }
  if (is_plain) return;
  __syncthreads();  // the token is stored, and the lists are free
  if (extras.changes != nullptr && is_number)
    count_token(extras.changes, load_past_l1(call.token_R + index));
  if (extras.report == nullptr) return;
  if (!is_number) num_kept = 0;
  if (num_top > kMostReported && is_number) num_kept = kHandedOver;
  if (num_kept == kHandedOver) {
    hand_over(row, extras.report);
  } else if (num_top > 0 && is_number) {
    report_best(call, index, row, measured, chunks, num_top, extras.report, scratch);
  }
  if (threadIdx.x == 0) call.num_kept_R[index] = num_kept;
}

}  // namespace

void finish_rows(const SampleCall& call, Stream stream) {
  constexpr int64_t kWantedBlocks = 512;  // one wave: four on each of 132 multiprocessors
  const int64_t chunks = sample_chunks(call.vocab);
  const int64_t blocks_per_row =
      std::clamp<int64_t>(kWantedBlocks / std::max<int64_t>(call.rows, 1), 1, chunks);
  launch(fill_buckets_kernel, dim3(blocks_per_row, call.rows), dim3(kTruncationThreads), 0, stream,
         call, chunks);
  launch(finish_rows_kernel, dim3(call.rows), dim3(kTruncationThreads), 0, stream, call, chunks);
}

}  // namespace slime::kernels::cuda
