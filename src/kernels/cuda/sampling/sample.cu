#include <cfloat>

#include "kernels/cuda/sampling/chunk_sums.cuh"
#include "kernels/cuda/sampling/logit_changes.cuh"
#include "kernels/cuda/sampling/sample_row.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = kChunkThreads;
constexpr int kPerThread = kChunkPerThread;

static_assert(kSampleChunk == kMassChunk);

/// Of one chunk, before some of its ids become impossible. By the whole thread block; ends with a barrier.
__device__ void tell_all_mass(const float* logits, int64_t begin, int64_t vocab, float inverse,
                              Largest* largest_scratch, float* sum_scratch, ChunkMasses* masses) {
  float x[kPerThread];
  Largest mine{-INFINITY, 0x7fffffff};
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t v = begin + i * kThreads + threadIdx.x;
    x[i] = v < vocab ? logits[v] : -INFINITY;
    mine = larger(mine, {x[i], static_cast<int32_t>(v)});
  }
  const Largest largest = block_largest(mine, largest_scratch);
  const float sum = block_sum(sum_of_exponentials(x, largest.value, inverse), sum_scratch);
  if (threadIdx.x == 0) {
    masses->largest = largest.value;
    masses->sum = sum;
  }
  __syncthreads();
}

/// Largest logit and sum of exp((logit - largest) / temperature) of one chunk, whose logits are
/// changed before where the row wants it.
__global__ void __launch_bounds__(kThreads) chunk_statistics_kernel(SampleCall call) {
  __shared__ Largest largest_scratch[kThreads / 32];
  __shared__ float sum_scratch[33];
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.y;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSampleChunk;
  float* logits = call.logits_RV + row * call.vocab;
  const float inverse = 1.0F / call.temperature_R[row];
  float x[kPerThread];
  ChunkMasses* masses = nullptr;
  if (call.extras_R != nullptr) {
    const RowExtras& extras = call.extras_R[row];
    if (extras.changes != nullptr)
      change_logits(extras.changes, extras.forbids != 0, logits, begin, begin + kSampleChunk);
    if (extras.masses != nullptr) {
      masses = extras.masses + blockIdx.x;
      tell_all_mass(logits, begin, call.vocab, inverse, largest_scratch, sum_scratch, masses);
    }
    if (extras.allowed != nullptr)
      mask_logits(extras.allowed, logits, begin, min(begin + kSampleChunk, call.vocab));
  }
  Largest mine{-INFINITY, 0x7fffffff};
  bool has_nan = false;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t v = begin + i * kThreads + threadIdx.x;
    x[i] = v < call.vocab ? logits[v] : -INFINITY;
    has_nan |= isnan(x[i]);
    if (v < call.vocab) mine = larger(mine, {x[i], static_cast<int32_t>(v)});
  }
  const Largest largest = block_largest(mine, largest_scratch);
  float sum = sum_of_exponentials(x, largest.value, inverse);
  if (has_nan) sum = NAN;
  sum = block_sum(sum, sum_scratch);
  if (threadIdx.x == 0) {
    const int64_t offset = row * gridDim.x + blockIdx.x;
    call.chunk_max_RC[offset] = largest.value;
    call.chunk_sum_RC[offset] = sum;
    call.chunk_argmax_RC[offset] = largest.index;
    if (masses != nullptr) {
      masses->allowed_largest = largest.value;
      masses->allowed_sum = sum;
    }
  }
}

struct RowStatistics {
  Largest largest;
  double total;  // of exp((logit - largest) / temperature)
};

/// By the whole thread block: statistics of the row, and in `mass_C` the mass of each of its
/// chunks, relative to the largest logit. The last three arguments are shared memory.
__device__ void combine_chunks(const SampleCall& call, int64_t row, int chunks,
                               Largest* largest_scratch, double* mass_C, RowStatistics& out) {
  Largest mine{-INFINITY, 0x7fffffff};
  for (int c = threadIdx.x; c < chunks; c += blockDim.x)
    mine =
        larger(mine, {call.chunk_max_RC[row * chunks + c], call.chunk_argmax_RC[row * chunks + c]});
  const Largest largest = block_largest(mine, largest_scratch);
  const double inverse = 1.0F / call.temperature_R[row];
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) {
    mass_C[c] = chunk_mass(call.chunk_max_RC[row * chunks + c], call.chunk_sum_RC[row * chunks + c],
                           largest.value, inverse);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0;  // in one order, whatever the number of threads
    for (int c = 0; c < chunks; ++c) total += mass_C[c];
    out = {largest, total};
  }
  __syncthreads();
}

/// The first of `count` masses at which the running sum exceeds `rest`, which becomes what is left
/// inside it; when rounding leaves a rest, the last one with any mass, and `rest` infinite.
__device__ int find_mass(const double* masses, int count, double& rest) {
  int last = 0;
  for (int i = 0; i < count; ++i) {
    if (masses[i] == 0) continue;
    last = i;
    if (rest < masses[i]) return i;
    rest -= masses[i];
  }
  rest = INFINITY;
  return last;
}

/// Buckets of a truncated row, zeroed, and how wide they are. By the whole thread block.
__device__ void prepare_truncation(const SampleCall& call, int64_t row,
                                   const RowStatistics& statistics) {
  for (int b = threadIdx.x; b < kSampleBuckets; b += kThreads) {
    call.bucket_mass_RB[row * kSampleBuckets + b] = 0;
    call.bucket_count_RB[row * kSampleBuckets + b] = 0;
  }
  if (threadIdx.x > 0) return;
  const double distance = truncation_distance(call, row, statistics.total);
  const float scale = static_cast<float>(kSampleBuckets / distance) / call.temperature_R[row];
  call.measured_R[row].buckets_per_logit = fminf(fmaxf(scale, FLT_MIN), FLT_MAX);
}

/// The draw without truncation: inverse of the cumulative distribution in the order of ids. First
/// the chunk is found, then the warp, then the thread, then the token. A truncated row is only
/// prepared.
__global__ void __launch_bounds__(kThreads) draw_kernel(SampleCall call, int chunks) {
  __shared__ RowStatistics statistics;
  __shared__ Largest largest_scratch[kThreads / 32];
  __shared__ double mass_C[kMaxSampleChunks];
  __shared__ double thread_mass[kThreads], warp_mass[kThreads / 32];
  __shared__ int chosen;  // a chunk, later a thread
  constexpr int kNone = -1, kTruncated = -2;
  __shared__ double left;  // of the cumulative mass, where the chosen part begins
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  combine_chunks(call, row, chunks, largest_scratch, mass_C, statistics);
  if (threadIdx.x == 0) {
    chosen = kNone;
    const bool is_number = statistics.total > 0 && !isinf(statistics.total);
    if (!is_number) {
      call.token_R[row] = 0;
      call.log_prob_R[row] = NAN;
    } else if (call.top_k_R[row] == 0) {
      store_token(call, row, statistics.largest.index, statistics.largest.value, statistics.total);
    } else if (is_truncated(call, row)) {
      chosen = kTruncated;
    } else {
      double rest = call.uniform_R[row] * statistics.total;
      chosen = find_mass(mass_C, chunks, rest);
      left = rest;
    }
    call.measured_R[row] = {statistics.total, statistics.largest.value, statistics.largest.index,
                            0};
  }
  __syncthreads();
  if (chosen == kTruncated) prepare_truncation(call, row, statistics);
  if (chosen < 0) return;
  const int64_t begin = static_cast<int64_t>(chosen) * kSampleChunk + threadIdx.x * kPerThread;
  const float* logits = call.logits_RV + row * call.vocab;
  const double inverse = 1.0 / call.temperature_R[row];
  double mass[kPerThread], mine = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const float x = begin + i < call.vocab ? logits[begin + i] : -INFINITY;
    mass[i] =
        x > -INFINITY ? exp((static_cast<double>(x) - statistics.largest.value) * inverse) : 0;
    mine += mass[i];
  }
  thread_mass[threadIdx.x] = mine;
  double of_warp = mine;
  for (int offset = 16; offset > 0; offset /= 2) of_warp += shuffle_xor(of_warp, offset);
  if (threadIdx.x % 32 == 0) warp_mass[threadIdx.x / 32] = of_warp;
  __syncthreads();
  if (threadIdx.x == 0) {
    double rest = left;
    const int warp = find_mass(warp_mass, kThreads / 32, rest);
    chosen = 32 * warp + find_mass(thread_mass + 32 * warp, 32, rest);
    left = rest;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) != chosen) return;
  double rest = left;
  const auto token = static_cast<int32_t>(begin + find_mass(mass, kPerThread, rest));
  store_token(call, row, token, statistics.largest.value, statistics.total);
}

}  // namespace

void sample(const SampleCall& call, Stream stream) {
  const auto chunks = static_cast<int>(sample_chunks(call.vocab));
  if (chunks > kMaxSampleChunks)
    throw std::runtime_error("vocabularies above a million ids are not supported");
  constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension
  if (call.rows > kMaxRows) throw std::runtime_error("at most 65535 rows are sampled at once");
  launch(chunk_statistics_kernel, dim3(chunks, call.rows), dim3(kThreads), 0, stream, call);
  launch(draw_kernel, dim3(call.rows), dim3(kThreads), 0, stream, call, chunks);
  finish_rows(call, stream);
}

}  // namespace slime::kernels::cuda
