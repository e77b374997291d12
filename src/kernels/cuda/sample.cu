#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sample.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = kSampleChunk / kThreads;
constexpr int kCutThreads = 1024;
constexpr double kMassUnit = 1099511627776.0;  // 2^40: masses relative to the largest, as integers

struct Largest {
  float value;
  int32_t index;
};

/// The larger value, of equal ones the smaller index.
__device__ Largest larger(Largest a, Largest b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

__device__ Largest block_largest(Largest mine, Largest* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Largest other{__shfl_xor_sync(0xffffffffU, mine.value, offset),
                        __shfl_xor_sync(0xffffffffU, mine.index, offset)};
    mine = larger(mine, other);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) scratch[warp] = mine;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) mine = larger(mine, scratch[w]);
  return mine;
}

/// Largest logit and sum of exp((logit - largest) / temperature) of one chunk.
__global__ void __launch_bounds__(kThreads) chunk_statistics_kernel(SampleCall call) {
  __shared__ Largest largest_scratch[kThreads / 32];
  __shared__ float sum_scratch[33];
  let_next_start();
  wait_for_inputs();
  const int64_t row = blockIdx.y;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSampleChunk;
  const float* logits = call.logits_RV + row * call.vocab;
  float x[kPerThread];
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
  const float inverse = 1.0F / call.temperature_R[row];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (x[i] > -INFINITY) sum += expf((x[i] - largest.value) * inverse);
  if (has_nan) sum = NAN;
  sum = block_sum(sum, sum_scratch);
  if (threadIdx.x == 0) {
    const int64_t place = row * gridDim.x + blockIdx.x;
    call.chunk_max_RC[place] = largest.value;
    call.chunk_sum_RC[place] = sum;
    call.chunk_argmax_RC[place] = largest.index;
  }
}

constexpr int kMaxChunks = 256;

struct RowStatistics {
  Largest largest;
  double total;  // of exp((logit - largest) / temperature)
};

/// By the whole block: statistics of the row, and in `mass_C` the mass of each of its chunks,
/// relative to the largest logit. The last three arguments are shared memory.
__device__ void combine_chunks(const SampleCall& call, int64_t row, int chunks,
                               Largest* largest_scratch, double* mass_C, RowStatistics& out) {
  Largest mine{-INFINITY, 0x7fffffff};
  for (int c = threadIdx.x; c < chunks; c += blockDim.x)
    mine =
        larger(mine, {call.chunk_max_RC[row * chunks + c], call.chunk_argmax_RC[row * chunks + c]});
  const Largest largest = block_largest(mine, largest_scratch);
  const double inverse = 1.0F / call.temperature_R[row];
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) {
    const float sum = call.chunk_sum_RC[row * chunks + c];
    const double shift =
        exp((static_cast<double>(call.chunk_max_RC[row * chunks + c]) - largest.value) * inverse);
    mass_C[c] = sum == 0 ? 0.0 : sum * shift;
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

__device__ bool is_cut(const SampleCall& call, int64_t row) {
  const int32_t top_k = call.top_k_R[row];
  return (top_k > 0 && top_k < call.vocab) || call.top_p_R[row] < 1.0F || call.min_p_R[row] > 0.0F;
}

__device__ void store(const SampleCall& call, int64_t row, int32_t token,
                      const RowStatistics& statistics) {
  const double logit = call.logits_RV[row * call.vocab + token];
  call.token_R[row] = token;
  call.log_prob_R[row] = static_cast<float>(
      (logit - statistics.largest.value) / call.temperature_R[row] - log(statistics.total));
}

/// The draw without cuts: inverse of the cumulative distribution in the order of ids. First the
/// chunk is found, then the warp, then the thread, then the token.
__global__ void __launch_bounds__(kThreads) draw_kernel(SampleCall call, int chunks) {
  __shared__ RowStatistics statistics;
  __shared__ Largest largest_scratch[kThreads / 32];
  __shared__ double mass_C[kMaxChunks];
  __shared__ double thread_mass[kThreads], warp_mass[kThreads / 32];
  __shared__ int chosen;
  __shared__ double left;  // of the cumulative mass, where the chosen part begins
  let_next_start();
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  combine_chunks(call, row, chunks, largest_scratch, mass_C, statistics);
  if (threadIdx.x == 0) {
    chosen = -1;
    const bool is_number = statistics.total > 0 && !isinf(statistics.total);
    if (!is_number) {
      call.token_R[row] = 0;
      call.log_prob_R[row] = NAN;
    } else if (call.top_k_R[row] == 0) {
      store(call, row, statistics.largest.index, statistics);
    } else if (!is_cut(call, row)) {
      double rest = call.uniform_R[row] * statistics.total;
      chosen = find_mass(mass_C, chunks, rest);
      left = rest;
    }
  }
  __syncthreads();
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
  for (int offset = 16; offset > 0; offset /= 2)
    of_warp += __shfl_xor_sync(0xffffffffU, of_warp, offset);
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
  store(call, row, static_cast<int32_t>(begin + find_mass(mass, kPerThread, rest)), statistics);
}

/// Unsigned integers in the order of floats, the largest float first.
__device__ uint32_t to_key(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000U ? bits : ~(bits | 0x80000000U);
}
__device__ float from_key(uint32_t key) {
  return __uint_as_float(key & 0x80000000U ? key : ~(key | 0x80000000U));
}

/// Where a target falls in the list of a row's tokens sorted from best to worst: all tokens of one
/// logit, those before it, and how many they are.
struct Place {
  uint32_t key;
  uint64_t mass_before, mass_each;
  uint32_t count_before, count;
};

struct CutRow {
  const float* logits_V;
  int64_t vocab;
  float largest;
  float inverse_temperature;

  __device__ uint64_t mass(float x) const {
    return static_cast<uint64_t>(static_cast<double>(expf((x - largest) * inverse_temperature)) *
                                 kMassUnit);
  }
};

/// Radix selection, eight bits at a time: the first key at which `count_before + count > target`
/// (by_count) or `mass_before + mass > target`. The last key that occurs if none does.
__device__ Place select(const CutRow& row, uint64_t target, bool by_count, uint32_t* count_B,
                        unsigned long long* mass_B, Place& shared) {
  if (threadIdx.x == 0) shared = {0, 0, 0, 0, 0};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
      count_B[b] = 0;
      mass_B[b] = 0;
    }
    __syncthreads();
    const uint32_t prefix = shared.key;
    const uint32_t fixed = shift == 24 ? 0U : ~0U << (shift + 8);
    for (int64_t v = threadIdx.x; v < row.vocab; v += blockDim.x) {
      const float x = row.logits_V[v];
      const uint32_t key = to_key(x);
      if ((key & fixed) != (prefix & fixed) || x == -INFINITY) continue;
      const uint32_t bucket = key >> shift & 255U;
      atomicAdd(&count_B[bucket], 1U);
      atomicAdd(&mass_B[bucket], static_cast<unsigned long long>(row.mass(x)));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      Place last = shared;
      Place next = shared;
      for (uint32_t b = 0; b < 256; ++b) {
        if (count_B[b] == 0) continue;
        last = next;
        last.key = prefix | b << shift;
        last.count = count_B[b];
        const uint64_t reached =
            by_count ? last.count_before + last.count : last.mass_before + mass_B[b];
        if (reached > target) break;
        next.count_before += count_B[b];
        next.mass_before += mass_B[b];
      }
      shared = last;
    }
    __syncthreads();
  }
  const Place place{shared.key, shared.mass_before, row.mass(from_key(shared.key)),
                    shared.count_before, shared.count};
  __syncthreads();
  return place;
}

/// The index-th token, in the order of ids, whose logit has this key.
__device__ int32_t token_at(const CutRow& row, uint32_t key, uint32_t index, uint32_t* counts) {
  __shared__ int32_t found;
  const int64_t part = (row.vocab + blockDim.x - 1) / blockDim.x;
  const int64_t begin = part * threadIdx.x;
  const int64_t end = begin + part < row.vocab ? begin + part : row.vocab;
  uint32_t mine = 0;
  for (int64_t v = begin; v < end; ++v) mine += to_key(row.logits_V[v]) == key ? 1 : 0;
  counts[threadIdx.x] = mine;
  __syncthreads();
  uint32_t before = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) before += counts[t];
  if (before <= index && index < before + mine) {
    for (int64_t v = begin; v < end; ++v) {
      if (to_key(row.logits_V[v]) == key && before++ == index) found = static_cast<int32_t>(v);
    }
  }
  __syncthreads();
  return found;
}

/// The kept tokens are a beginning of the list sorted from best to worst, ties by id: ended by rank
/// (top-k), by the mass before a token (top-p) or by its logit (min-p).
__global__ void __launch_bounds__(kCutThreads) draw_cut_kernel(SampleCall call, int chunks) {
  __shared__ uint32_t count_B[kCutThreads];
  __shared__ unsigned long long mass_B[256];
  __shared__ Place place;
  __shared__ RowStatistics statistics;
  __shared__ Largest largest_scratch[kCutThreads / 32];
  __shared__ double mass_C[kMaxChunks];
  let_next_start();
  wait_for_inputs();
  const int64_t index = blockIdx.x;
  if (call.top_k_R[index] == 0 || !is_cut(call, index)) return;
  combine_chunks(call, index, chunks, largest_scratch, mass_C, statistics);
  if (!(statistics.total > 0) || isinf(statistics.total)) return;  // draw_kernel reported it
  const CutRow row{call.logits_RV + index * call.vocab, call.vocab, statistics.largest.value,
                   1.0F / call.temperature_R[index]};
  // Mass and number of the kept tokens: the smallest of the three cuts.
  const double total = statistics.total * kMassUnit;
  uint64_t kept_mass = ~0ULL;
  const auto keep = [&](const Place& at, uint64_t num_ties) {
    const uint64_t mass = at.mass_before + num_ties * at.mass_each;
    if (mass < kept_mass) kept_mass = mass;
  };
  const int32_t top_k = call.top_k_R[index];
  if (top_k > 0 && top_k < call.vocab) {
    const Place at = select(row, static_cast<uint64_t>(top_k) - 1, true, count_B, mass_B, place);
    const uint64_t ties = static_cast<uint64_t>(top_k) - at.count_before;
    keep(at, ties < at.count ? ties : at.count);
  }
  if (call.top_p_R[index] < 1.0F) {
    const auto limit = static_cast<uint64_t>(static_cast<double>(call.top_p_R[index]) * total);
    const Place at = select(row, limit, false, count_B, mass_B, place);
    uint64_t ties = at.count;
    if (at.mass_each > 0) {
      const uint64_t more = limit < at.mass_before ? 0 : (limit - at.mass_before) / at.mass_each;
      ties = more + 1 < ties ? more + 1 : ties;
    }
    keep(at, ties);
  }
  if (call.min_p_R[index] > 0.0F) {
    // All tokens at least min_p times as likely as the best: their mass, by one more pass.
    if (threadIdx.x == 0) mass_B[0] = 0;
    __syncthreads();
    unsigned long long mine = 0;
    const double least = call.min_p_R[index];
    for (int64_t v = threadIdx.x; v < row.vocab; v += blockDim.x) {
      const float x = row.logits_V[v];
      const double relative =
          exp((static_cast<double>(x) - row.largest) / call.temperature_R[index]);
      if (relative >= least) mine += row.mass(x);
    }
    atomicAdd(&mass_B[0], mine);
    __syncthreads();
    if (mass_B[0] < kept_mass) kept_mass = mass_B[0];
    __syncthreads();
  }
  const auto target = static_cast<uint64_t>(call.uniform_R[index] * static_cast<double>(kept_mass));
  const Place at = select(row, target, false, count_B, mass_B, place);
  uint64_t tie =
      at.mass_each > 0 && target > at.mass_before ? (target - at.mass_before) / at.mass_each : 0;
  if (tie >= at.count) tie = at.count - 1;
  const int32_t token = token_at(row, at.key, static_cast<uint32_t>(tie), count_B);
  if (threadIdx.x == 0) store(call, index, token, statistics);
}

}  // namespace

void sample(const SampleCall& call, cudaStream_t stream) {
  const auto chunks = static_cast<int>(sample_chunks(call.vocab));
  if (chunks > kMaxChunks)
    throw std::runtime_error("vocabularies above a million ids are not supported");
  constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension
  if (call.rows > kMaxRows) throw std::runtime_error("at most 65535 rows are sampled at once");
  launch(chunk_statistics_kernel, dim3(chunks, call.rows), dim3(kThreads), 0, stream, call);
  launch(draw_kernel, dim3(call.rows), dim3(kThreads), 0, stream, call, chunks);
  launch(draw_cut_kernel, dim3(call.rows), dim3(kCutThreads), 0, stream, call, chunks);
}

}  // namespace slime::kernels::cuda
