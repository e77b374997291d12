#include "kernels/cuda/training/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

/// Of logits x at a temperature t, relative to the largest so far: sums of e^d and of d e^d with d
/// = (x - high) / t. Only differences are scaled, so results are as precise as those, however large
/// the logits are.
struct Sums {
  float high = -INFINITY, total = 0, weighted = 0;

  __device__ Sums relative_to(float higher, float inverse_temperature) const {
    if (high == -INFINITY) return {higher, 0, 0};
    const float shift = (high - higher) * inverse_temperature, shrink = __expf(shift);
    return {higher, total * shrink, (weighted + shift * total) * shrink};
  }
};

__device__ inline Sums warp_merged(Sums sums, float inverse_temperature) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Sums other{__shfl_xor_sync(0xffffffffU, sums.high, offset),
                     __shfl_xor_sync(0xffffffffU, sums.total, offset),
                     __shfl_xor_sync(0xffffffffU, sums.weighted, offset)};
    const float high = fmaxf(sums.high, other.high);
    const Sums left = sums.relative_to(high, inverse_temperature);
    const Sums right = other.relative_to(high, inverse_temperature);
    sums = {high, left.total + right.total, left.weighted + right.weighted};
  }
  return sums;
}

/// One thread block per row, one pass over it.
__global__ void __launch_bounds__(kThreads)
    softmax_statistics_kernel(const float* logits_RV, const int64_t* target_R,
                              float inverse_temperature, float* logprob_R, float* entropy_R,
                              float* logsumexp_R, int64_t vocabulary) {
  __shared__ Sums scratch[32];
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  const float* logits = logits_RV + row * vocabulary;
  const bool has_packs = vocabulary % 4 == 0;
  const int64_t packs = has_packs ? vocabulary / 4 : 0;
  Sums sums;
  const auto add = [&](const float(&x)[4], int count) {
    float high = sums.high;
    for (int j = 0; j < count; ++j) high = fmaxf(high, x[j]);
    if (high > sums.high) sums = sums.relative_to(high, inverse_temperature);
    for (int j = 0; j < count; ++j) {
      const float below = (x[j] - high) * inverse_temperature, e = __expf(below);
      sums.total += e;
      sums.weighted += below * e;
    }
  };
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
    const float4 x = reinterpret_cast<const float4*>(logits)[i];
    add({x.x, x.y, x.z, x.w}, 4);
  }
  for (int64_t i = 4 * packs + threadIdx.x; i < vocabulary; i += kThreads)
    add({logits[i], 0, 0, 0}, 1);

  sums = warp_merged(sums, inverse_temperature);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sums = warp_merged(scratch[threadIdx.x], inverse_temperature);
  if (threadIdx.x != 0) return;
  const float log_total = logf(sums.total);
  logsumexp_R[row] = sums.high * inverse_temperature + log_total;
  const int64_t target = target_R[row];
  const float target_logit = target < 0 ? 0.0F : logits[target];
  logprob_R[row] = (target_logit - sums.high) * inverse_temperature - log_total;
  entropy_R[row] = log_total - sums.weighted / sums.total;
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
    const float log_p = logit * inverse_temperature - logsumexp, p = __expf(log_p);
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

void soft_cap(float* x, int64_t size, float cap, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = (size / 4 + kThreads - 1) / kThreads;
  launch(soft_cap_kernel,
         dim3(blocks < 1             ? 1
              : blocks > kMostBlocks ? kMostBlocks
                                     : blocks),
         dim3(kThreads), 0, stream, x, size, cap);
}

void softmax_statistics(const float* logits_RV, const int64_t* target_R, float temperature,
                        float* logprob_R, float* entropy_R, float* logsumexp_R, int64_t rows,
                        int64_t vocabulary, cudaStream_t stream) {
  launch(softmax_statistics_kernel, dim3(rows), dim3(kThreads), 0, stream, logits_RV, target_R,
         1.0F / temperature, logprob_R, entropy_R, logsumexp_R, vocabulary);
}

void softmax_backward(const SoftmaxBackwardCall& call, cudaStream_t stream) {
  constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension
  if (call.rows > kMaxRows) throw std::runtime_error("more rows of logits than a launch takes");
  const int64_t blocks = (call.vocabulary / 4 + kThreads - 1) / kThreads;
  with_type(call.number, [&](auto zero) {
    launch(softmax_backward_kernel<decltype(zero)>, dim3(blocks < 1 ? 1 : blocks, call.rows),
           dim3(kThreads), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
