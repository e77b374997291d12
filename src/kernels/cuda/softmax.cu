#include "kernels/cuda/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

/// Softmax sums relative to a running maximum: of e^(u - high), and of u e^(u - high).
struct Sums {
  float high = -INFINITY, total = 0, weighted = 0;
};

__device__ inline Sums merged(const Sums& a, const Sums& b) {
  const float high = fmaxf(a.high, b.high);
  if (high == -INFINITY) return a;
  const float left = __expf(a.high - high), right = __expf(b.high - high);
  return {high, a.total * left + b.total * right, a.weighted * left + b.weighted * right};
}

__device__ inline Sums warp_merged(Sums sums) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Sums other{__shfl_xor_sync(0xffffffffU, sums.high, offset),
                     __shfl_xor_sync(0xffffffffU, sums.total, offset),
                     __shfl_xor_sync(0xffffffffU, sums.weighted, offset)};
    sums = merged(sums, other);
  }
  return sums;
}

/// One block per row, one pass over it.
__global__ void __launch_bounds__(kThreads)
    softmax_statistics_kernel(const float* logits_RV, const int64_t* target_R,
                              float inverse_temperature, float* logprob_R, float* entropy_R,
                              float* logsumexp_R, int64_t vocabulary) {
  __shared__ Sums scratch[32];
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const float* logits = logits_RV + row * vocabulary;
  const bool has_packs = vocabulary % 4 == 0;
  const int64_t packs = has_packs ? vocabulary / 4 : 0;
  Sums sums;
  const auto add = [&](const float(&u)[4], int count) {
    float high = sums.high;
    for (int j = 0; j < count; ++j) high = fmaxf(high, u[j]);
    if (high > sums.high) {
      const float shrink = __expf(sums.high - high);
      sums = {high, sums.total * shrink, sums.weighted * shrink};
    }
    for (int j = 0; j < count; ++j) {
      const float e = __expf(u[j] - high);
      sums.total += e;
      sums.weighted += u[j] * e;
    }
  };
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
    const float4 x = reinterpret_cast<const float4*>(logits)[i];
    add({x.x * inverse_temperature, x.y * inverse_temperature, x.z * inverse_temperature,
         x.w * inverse_temperature},
        4);
  }
  for (int64_t i = 4 * packs + threadIdx.x; i < vocabulary; i += kThreads)
    add({logits[i] * inverse_temperature, 0, 0, 0}, 1);

  sums = warp_merged(sums);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sums = warp_merged(scratch[threadIdx.x]);
  if (threadIdx.x != 0) return;
  const float logsumexp = sums.high + logf(sums.total);
  logsumexp_R[row] = logsumexp;
  logprob_R[row] = logits[target_R[row]] * inverse_temperature - logsumexp;
  entropy_R[row] = logsumexp - sums.weighted / sums.total;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) softmax_backward_kernel(SoftmaxBackwardCall call) {
  wait_for_inputs();
  const int64_t row = blockIdx.y, vocabulary = call.vocabulary;
  const float inverse_temperature = 1.0F / call.temperature;
  const float* logits = call.logits_RV + row * vocabulary;
  T* out = static_cast<T*>(call.dlogits_RV) + row * vocabulary;
  const int64_t target = call.target_R[row];
  const float logsumexp = call.logsumexp_R[row], dlogprob = call.dlogprob_R[row];
  const float dentropy = call.dentropy_R == nullptr ? 0.0F : call.dentropy_R[row];
  const float entropy = call.dentropy_R == nullptr ? 0.0F : call.entropy_R[row];
  const auto gradient = [&](float logit, int64_t i) {
    const float log_p = logit * inverse_temperature - logsumexp, p = __expf(log_p);
    float du = -p * dlogprob - p * (log_p + entropy) * dentropy;
    if (i == target) du += dlogprob;
    return du * inverse_temperature;
  };
  if (vocabulary % 4 == 0) {
    struct alignas(4 * sizeof(T)) Four {
      T x[4];
    };
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vocabulary / 4;
         i += static_cast<int64_t>(gridDim.x) * kThreads) {
      const float4 x = reinterpret_cast<const float4*>(logits)[i];
      Four four;
      four.x[0] = from_float<T>(gradient(x.x, 4 * i));
      four.x[1] = from_float<T>(gradient(x.y, 4 * i + 1));
      four.x[2] = from_float<T>(gradient(x.z, 4 * i + 2));
      four.x[3] = from_float<T>(gradient(x.w, 4 * i + 3));
      reinterpret_cast<Four*>(out)[i] = four;
    }
  } else {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vocabulary;
         i += static_cast<int64_t>(gridDim.x) * kThreads)
      out[i] = from_float<T>(gradient(logits[i], i));
  }
}

}  // namespace

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
