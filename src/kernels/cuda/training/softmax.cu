#include "kernels/cuda/sampling/chunk_sums.cuh"
#include "kernels/cuda/training/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

/// Of one chunk of a row: what sampling's kernel finds (sampling/chunk_sums.cuh), and the sum of d e^d
/// with d = (logit - the chunk's largest) / temperature.
__global__ void __launch_bounds__(kChunkThreads)
    chunk_sums_kernel(const float* logits_RV, float inverse_temperature, ChunkSums* sums_RC,
                      int64_t vocabulary) {
  __shared__ Largest largest_scratch[kChunkThreads / 32];
  __shared__ float scratch[33], weighted_scratch[33];
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x, begin = static_cast<int64_t>(blockIdx.y) * kSampleChunk;
  const float* logits = logits_RV + row * vocabulary;
  float x[kChunkPerThread];
  Largest mine{-INFINITY, 0x7fffffff};
  bool has_nan = false;
#pragma unroll
  for (int i = 0; i < kChunkPerThread; ++i) {
    const int64_t v = begin + i * kChunkThreads + threadIdx.x;
    x[i] = v < vocabulary ? logits[v] : -INFINITY;
    has_nan |= isnan(x[i]);
    if (v < vocabulary) mine = larger(mine, {x[i], static_cast<int32_t>(v)});
  }
  const float largest = block_largest(mine, largest_scratch).value;
  float sum = sum_of_exponentials(x, largest, inverse_temperature), weighted = 0;
  if (has_nan) sum = NAN;
#pragma unroll
  for (int i = 0; i < kChunkPerThread; ++i) {
    const float below = (x[i] - largest) * inverse_temperature;
    if (x[i] > -INFINITY) weighted += below * fast_exp(below);
  }
  sum = block_sum(sum, scratch);
  weighted = block_sum(weighted, weighted_scratch);
  if (threadIdx.x == 0) sums_RC[row * gridDim.y + blockIdx.y] = {largest, sum, weighted};
}

/// One thread block per row.
__global__ void __launch_bounds__(kMaxSampleChunks)
    softmax_statistics_kernel(const float* logits_RV, const int64_t* target_R, float temperature,
                              const ChunkSums* sums_RC, int chunks, float* logprob_R,
                              float* entropy_R, float* logsumexp_R, int64_t vocabulary) {
  __shared__ double mass_C[kMaxSampleChunks], weighted_C[kMaxSampleChunks];
  __shared__ float scratch[kMaxSampleChunks / 32];
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  const int c = threadIdx.x;
  const ChunkSums own = c < chunks ? sums_RC[row * chunks + c] : ChunkSums{-INFINITY, 0.0F, 0.0F};
  float largest = own.largest;
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, shuffle_xor(largest, offset));
  if (c % 32 == 0) scratch[c / 32] = largest;
  __syncthreads();
  for (const float other : scratch) largest = fmaxf(largest, other);
  const double inverse = 1.0F / temperature;
  mass_C[c] = chunk_mass(own.largest, own.sum, largest, inverse);
  // Of d relative to the row's largest: each is smaller by the distance of the two.
  const double distance = (static_cast<double>(own.largest) - largest) * inverse;
  weighted_C[c] = own.sum == 0 ? 0.0 : (own.weighted + distance * own.sum) * exp(distance);
  __syncthreads();
  if (c != 0) return;
  double total = 0, weighted = 0;  // in one order, sampling's
  for (int i = 0; i < chunks; ++i) total += mass_C[i];
  for (int i = 0; i < chunks; ++i) weighted += weighted_C[i];
  const int64_t target = target_R[row];
  const double logit = target < 0 ? 0.0 : logits_RV[row * vocabulary + target];
  logprob_R[row] = log_prob_of(logit, largest, temperature, total);
  entropy_R[row] = static_cast<float>(log(total) - weighted / total);
  logsumexp_R[row] = static_cast<float>(static_cast<double>(largest) / temperature + log(total));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) softmax_backward_kernel(SoftmaxBackwardCall call) {
  grid_dependency_wait();
  const int64_t row = blockIdx.y, vocabulary = call.vocabulary;
  const float inverse_temperature = 1.0F / call.temperature;
  const float* logits = call.logits_RV + row * vocabulary;
  T* out = static_cast<T*>(call.dlogits_RV) + row * vocabulary;
  const int64_t target = call.target_R[row];
  const float logsumexp = call.logsumexp_R[row], dlogprob = call.dlogprob_R[row];
  const float dentropy = call.dentropy_R == nullptr ? 0.0F : call.dentropy_R[row];
  const float entropy = call.dentropy_R == nullptr ? 0.0F : call.entropy_R[row];
  const float inverse_cap = call.inverse_cap;
  const auto gradient = [&](float logit, int64_t i) {
    const float share = logit * inverse_cap, slope = 1.0F - share * share;  // 1 without a cap
    const float log_p = logit * inverse_temperature - logsumexp, p = fast_exp(log_p);
    float du = -p * dlogprob - p * (log_p + entropy) * dentropy;
    if (i == target) du += dlogprob;
    return du * inverse_temperature * slope;
  };
  if (vocabulary % 4 == 0) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vocabulary / 4;
         i += static_cast<int64_t>(gridDim.x) * kThreads) {
      const float4 x = reinterpret_cast<const float4*>(logits)[i];
      Pack<T, 4> four;
      four.x[0] = from_float<T>(gradient(x.x, 4 * i));
      four.x[1] = from_float<T>(gradient(x.y, 4 * i + 1));
      four.x[2] = from_float<T>(gradient(x.z, 4 * i + 2));
      four.x[3] = from_float<T>(gradient(x.w, 4 * i + 3));
      reinterpret_cast<Pack<T, 4>*>(out)[i] = four;
    }
  } else {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vocabulary;
         i += static_cast<int64_t>(gridDim.x) * kThreads)
      out[i] = from_float<T>(gradient(logits[i], i));
  }
}

__global__ void __launch_bounds__(kThreads) soft_cap_kernel(float* x, int64_t size, float cap) {
  grid_dependency_wait();
  const float inverse = 1.0F / cap;
  const auto capped = [&](float number) { return cap * tanhf(number * inverse); };
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, packs = size / 4;
  for (int64_t i = first; i < packs; i += step) {
    const float4 four = reinterpret_cast<const float4*>(x)[i];
    reinterpret_cast<float4*>(x)[i] = {capped(four.x), capped(four.y), capped(four.z),
                                       capped(four.w)};
  }
  for (int64_t i = 4 * packs + first; i < size; i += step) x[i] = capped(x[i]);
}

}  // namespace

void soft_cap(float* x, int64_t size, float cap, Stream stream) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = (size / 4 + kThreads - 1) / kThreads;
  launch(soft_cap_kernel,
         dim3(blocks < 1             ? 1
              : blocks > kMostBlocks ? kMostBlocks
                                     : blocks),
         dim3(kThreads), 0, stream, x, size, cap);
}

bool has_softmax_statistics(int64_t vocabulary) {
  return sample_chunks(vocabulary) <= kMaxSampleChunks;
}

void softmax_statistics(const SoftmaxCall& call, Stream stream) {
  const auto chunks = static_cast<int>(sample_chunks(call.vocabulary));
  const dim3 rows(static_cast<unsigned>(call.rows));
  launch(chunk_sums_kernel, dim3(rows.x, static_cast<unsigned>(chunks)), dim3(kChunkThreads), 0,
         stream, call.logits_RV, 1.0F / call.temperature, call.sums_RC, call.vocabulary);
  launch(softmax_statistics_kernel, rows, dim3(kMaxSampleChunks), 0, stream, call.logits_RV,
         call.target_R, call.temperature, call.sums_RC, chunks, call.logprob_R, call.entropy_R,
         call.logsumexp_R, call.vocabulary);
}

void softmax_backward(const SoftmaxBackwardCall& call, Stream stream) {
  constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension
  if (call.rows > kMaxRows) throw std::runtime_error("more rows of logits than a launch takes");
  const int64_t blocks = (call.vocabulary / 4 + kThreads - 1) / kThreads;
  with_type(call.number, [&](auto zero) {
    launch(softmax_backward_kernel<decltype(zero)>, dim3(blocks < 1 ? 1 : blocks, call.rows),
           dim3(kThreads), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
