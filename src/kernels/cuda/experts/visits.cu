#include "kernels/cuda/experts/visits.h"

#include <stdexcept>

namespace slime::kernels::cuda {
namespace {

constexpr int kMostThreads = 1024;

/// One thread block per row, eight numbers of it a thread at a time.
template <int kHeld, bool kNorm>
__global__ void __launch_bounds__(kMostThreads) sum_visits_kernel(const VisitSum a, int packs) {
  using T = BFloat16;
  __shared__ float scratch[33];
  const int64_t row = blockIdx.x;
  const auto* rows = static_cast<const uint4*>(a.rows_SH);
  launch_dependents();
  Pack<T> norm[kHeld], held[kHeld];
  if constexpr (kNorm) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = threadIdx.x + h * blockDim.x;
      if (i < packs) norm[h] = static_cast<const Pack<T>*>(a.norm_H)[i];
    }
  }
  grid_dependency_wait();
  auto* residual = static_cast<uint4*>(a.residual_TH) + row * packs;
  const auto* base = static_cast<const uint4*>(a.base_TH) + row * packs;
  auto* out = static_cast<Pack<T>*>(a.out_TH) + row * packs;
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= packs) continue;
    float sum[8] = {};
    constexpr int kAtOnce = 4;  // loads before the first sum (kernels/cuda/partial_sums.cuh)
#pragma unroll 1
    for (int first = 0; first < a.per_token; first += kAtOnce) {
      float weight[kAtOnce];
      int64_t place[kAtOnce];
      uint4 loaded[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t visit = row * a.per_token + first + k;
        weight[k] = 1.0F;
        place[k] = visit;
        if (first + k >= a.per_token) continue;
        if (a.weight_TK != nullptr) weight[k] = load_past_l1(a.weight_TK + visit);
        if (a.place_TK != nullptr) place[k] = load_past_l1(a.place_TK + visit);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first + k < a.per_token) loaded[k] = load_past_l1(rows + place[k] * packs + i);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= a.per_token) continue;
        const auto& pack = reinterpret_cast<const Pack<T>&>(loaded[k]);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[j] += weight[k] * to_float(pack.x[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = rounded<T>(sum[j]);  // as training does
    if (a.more_TH != nullptr) {
      const uint4 loaded = load_past_l1(static_cast<const uint4*>(a.more_TH) + row * packs + i);
      const auto& more = reinterpret_cast<const Pack<T>&>(loaded);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = rounded<T>(sum[j] + to_float(more.x[j]));
    }
    if constexpr (kNorm) {
      const uint4 loaded = load_past_l1(base + i);
      const auto& before = reinterpret_cast<const Pack<T>&>(loaded);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        held[h].x[j] = from_float<T>(to_float(before.x[j]) + sum[j]);
        squares += to_float(held[h].x[j]) * to_float(held[h].x[j]);
      }
      residual[i] = reinterpret_cast<const uint4&>(held[h]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) held[h].x[j] = from_float<T>(sum[j]);
      out[i] = held[h];
    }
  }
  if constexpr (kNorm) {
    const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(a.hidden) + a.eps);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = threadIdx.x + h * blockDim.x;
      if (i >= packs) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        held[h].x[j] = from_float<T>(to_float(held[h].x[j]) * scale * to_float(norm[h].x[j]));
      out[i] = held[h];
    }
  }
}

template <bool kNorm>
void run_sum(const VisitSum& call, Stream stream) {
  const int packs = call.hidden / 8, whole = (packs + 31) / 32 * 32;
  const int threads = whole < kMostThreads ? whole : kMostThreads;
  if (packs > 2 * threads) throw std::runtime_error("rows of this length are not supported");
  const auto kernel = packs <= threads ? sum_visits_kernel<1, kNorm> : sum_visits_kernel<2, kNorm>;
  launch(kernel, dim3(call.rows), dim3(threads), 0, stream, call, packs);
}

/// A warp takes one visit.
constexpr int kGatedWarps = 8;

__global__ void __launch_bounds__(32 * kGatedWarps) gated_backward_kernel(const GatedBackward a) {
  using T = BFloat16;
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kGatedWarps + threadIdx.x / 32;
  if (row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, packs = a.width / 8;
  const auto* gates = static_cast<const Pack<T>*>(a.gate_up_S2F) + row * 2 * packs;
  const auto* dgated = static_cast<const Pack<T>*>(a.dgated_SF) + row * packs;
  auto* dgates = static_cast<Pack<T>*>(a.dgate_up_S2F) + row * 2 * packs;
  auto* weighted = static_cast<Pack<T>*>(a.weighted_SF) + row * packs;
  const float weight = a.weight_S[row];
  float dweight = 0;
  for (int i = lane; i < packs; i += 32) {
    const Pack<T> gate = gates[i], up = gates[packs + i], dy = dgated[i];
    Pack<T> dgate, dup, product;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float g = to_float(gate.x[j]), u = to_float(up.x[j]);
      const float sigmoid = 1.0F / (1.0F + fast_exp(-g));
      const float gated = to_float(from_float<T>(g * sigmoid * u));
      dweight += to_float(dy.x[j]) * gated;
      product.x[j] = from_float<T>(gated * weight);
      const float slope = to_float(from_float<T>(to_float(dy.x[j]) * weight));
      dgate.x[j] = from_float<T>(slope * u * sigmoid * (1.0F + g * (1.0F - sigmoid)));
      dup.x[j] = from_float<T>(slope * g * sigmoid);
    }
    weighted[i] = product;
    dgates[i] = dgate;
    dgates[packs + i] = dup;
  }
  dweight = warp_sum(dweight);
  if (lane == 0) a.dweight_S[row] = dweight;
}

constexpr int kPlainThreads = 128, kPlainTile = 16;

/// Which matrix a row has: the number of starts, without the first, that are not behind it.
__device__ int matrix_of(const int32_t* starts_E1, int experts, int64_t row) {
  int low = 0, high = experts - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (starts_E1[middle + 1] <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename T>
__global__ void plain_product_kernel(const PlainGroupedProduct a) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.x;
  const int output = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (output >= a.outputs) return;
  const int expert = matrix_of(a.starts_E1, a.experts, row);
  const T* x = static_cast<const T*>(a.x_SI) + row * a.inputs;
  const T* w =
      static_cast<const T*>(a.weight) + expert * a.expert_stride + output * a.output_stride;
  float sum = 0;
  for (int i = 0; i < a.inputs; ++i) sum += to_float(x[i]) * to_float(w[i * a.input_stride]);
  static_cast<T*>(a.y_SO)[row * a.outputs + output] = from_float<T>(sum);
}

template <typename T>
__global__ void plain_gradient_kernel(const PlainGroupedGradient a) {
  launch_dependents();
  grid_dependency_wait();
  const int expert = static_cast<int>(blockIdx.z);
  const int input = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int output = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (input >= a.inputs || output >= a.outputs) return;
  float sum = 0;
  for (int64_t s = a.starts_E1[expert]; s < a.starts_E1[expert + 1]; ++s)
    sum += to_float(static_cast<const T*>(a.dy_SO)[s * a.outputs + output]) *
           to_float(static_cast<const T*>(a.x_SI)[s * a.inputs + input]);
  a.grad_EOI[(static_cast<int64_t>(expert) * a.outputs + output) * a.inputs + input] += sum;
}

}  // namespace

void sum_visits(const VisitSum& call, Stream stream) {
  call.base_TH == nullptr ? run_sum<false>(call, stream) : run_sum<true>(call, stream);
}

void gated_backward(const GatedBackward& call, Stream stream) {
  launch(gated_backward_kernel, dim3((call.rows + kGatedWarps - 1) / kGatedWarps),
         dim3(32 * kGatedWarps), 0, stream, call);
}

void plain_grouped_product(const PlainGroupedProduct& call, Stream stream) {
  with_type(call.number, [&](auto zero) {
    launch(plain_product_kernel<decltype(zero)>,
           dim3(call.rows, (call.outputs + kPlainThreads - 1) / kPlainThreads), dim3(kPlainThreads),
           0, stream, call);
  });
}

void plain_grouped_gradient(const PlainGroupedGradient& call, Stream stream) {
  with_type(call.number, [&](auto zero) {
    launch(plain_gradient_kernel<decltype(zero)>,
           dim3((call.inputs + kPlainTile - 1) / kPlainTile,
                (call.outputs + kPlainTile - 1) / kPlainTile, call.experts),
           dim3(kPlainTile, kPlainTile), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
