#include "kernels/cuda/rows/rows.h"

#include <type_traits>

#include "kernels/cuda/partial_sums.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kMaxThreads = 1024;

/// Threads that cover a row with one pack each, whole warps.
int threads_for(int64_t packs) {
  const int64_t whole = (packs + 31) / 32 * 32;
  return static_cast<int>(whole < kMaxThreads ? whole : kMaxThreads);
}

void check_rows(int64_t length, int64_t pack) {
  if (length % pack != 0)
    throw std::runtime_error("CUDA kernels need row lengths that are multiples of 16 bytes, got " +
                             std::to_string(length) + " numbers");
}

template <typename T>
__global__ void embedding_kernel(const int64_t* ids_T, const T* table_VH, T* out_TH,
                                 int64_t packs) {
  launch_dependents();
  grid_dependency_wait();
  const auto* from = reinterpret_cast<const Pack<T>*>(table_VH) + ids_T[blockIdx.x] * packs;
  auto* to = reinterpret_cast<Pack<T>*>(out_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) to[i] = from[i];
}

/// out = held * scale * weight, in a thread's packs of a row.
template <typename T, typename W, int kNumbers, int kHeld>
__device__ void write_scaled(Pack<T, kNumbers> (&held)[kHeld],
                             const Pack<W, kNumbers> (&weight)[kHeld], float scale,
                             Pack<T, kNumbers>* out, int packs) {
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= packs) continue;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j)
      held[h].x[j] = from_float<T>(to_float(held[h].x[j]) * scale * to_float(weight[h].x[j]));
    out[i] = held[h];
  }
}

/// One thread block per row. Up to kHeld packs a thread stay in registers between the two passes.
template <typename T, typename W, int kHeld>
__global__ void __launch_bounds__(kMaxThreads)
    add_rms_norm_kernel(const T* x_TH, const T* update_TH, const W* weight_H, T* sum_TH, T* out_TH,
                        int packs, float inverse_hidden, float eps) {
  __shared__ float scratch[33];
  constexpr int kSize = Pack<T>::kSize;
  // A weight in float32 may have been made by a kernel just before (norms that add one).
  constexpr bool kIsStored = std::is_same_v<T, W> && !std::is_same_v<T, float>;
  launch_dependents();
  Pack<W, kSize> weight[kHeld];
  const auto load_weight = [&] {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = threadIdx.x + h * blockDim.x;
      if (i < packs) weight[h] = reinterpret_cast<const Pack<W, kSize>*>(weight_H)[i];
    }
  };
  if constexpr (kIsStored) load_weight();
  grid_dependency_wait();
  if constexpr (!kIsStored) load_weight();
  const auto* x = reinterpret_cast<const Pack<T>*>(x_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  auto* sum = reinterpret_cast<Pack<T>*>(sum_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  const auto* update = update_TH == nullptr ? nullptr
                                            : reinterpret_cast<const Pack<T>*>(update_TH) +
                                                  static_cast<int64_t>(blockIdx.x) * packs;
  auto* out = reinterpret_cast<Pack<T>*>(out_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  Pack<T> held[kHeld];
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= packs) continue;
    held[h] = x[i];
    if (update != nullptr) {
      const Pack<T> added = update[i];
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        held[h].x[j] = from_float<T>(to_float(held[h].x[j]) + to_float(added.x[j]));
      sum[i] = held[h];
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float value = to_float(held[h].x[j]);
      squares += value * value;
    }
  }
  const float scale = rsqrtf(block_sum(squares, scratch) * inverse_hidden + eps);
  write_scaled(held, weight, scale, out, packs);
}

/// One thread block per row, four numbers of it a thread at a time.
template <int kHeld>
__global__ void __launch_bounds__(kMaxThreads)
    add_parts_rms_norm_kernel(BFloat16* x_TH, const float* partials_STH, int num_splits,
                              const BFloat16* bias_H, const BFloat16* weight_H, BFloat16* out_TH,
                              int packs, float inverse_hidden, float eps) {
  using T = BFloat16;
  using Four = Pack<T, 4>;
  __shared__ float scratch[33];
  launch_dependents();
  Four weight[kHeld], held[kHeld];
  float4 added[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    added[h] = make_float4(0, 0, 0, 0);
    if (i >= packs) continue;
    weight[h] = reinterpret_cast<const Four*>(weight_H)[i];
    if (bias_H == nullptr) continue;
    const Four bias = reinterpret_cast<const Four*>(bias_H)[i];
    added[h] = make_float4(to_float(bias.x[0]), to_float(bias.x[1]), to_float(bias.x[2]),
                           to_float(bias.x[3]));
  }
  grid_dependency_wait();
  auto* x = reinterpret_cast<Four*>(x_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  auto* out = reinterpret_cast<Four*>(out_TH) + static_cast<int64_t>(blockIdx.x) * packs;
  const auto* partials =
      reinterpret_cast<const float4*>(partials_STH) + static_cast<int64_t>(blockIdx.x) * packs;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * packs;
  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= packs) continue;
    // Past the L1 cache, which may hold what another kernel read here before it was complete.
    const uint2 loaded = load_past_l1(reinterpret_cast<const uint2*>(x + i));
    held[h] = reinterpret_cast<const Four&>(loaded);
    add_partials<kHeld == 1 ? 8 : 4>(added[h], partials + i, stride, num_splits);
    const float values[4] = {added[h].x, added[h].y, added[h].z, added[h].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Rounded before the addition too, as where the product's result is stored.
      held[h].x[j] = from_float<T>(to_float(held[h].x[j]) + rounded<T>(values[j]));
      const float value = to_float(held[h].x[j]);
      squares += value * value;
    }
    x[i] = held[h];
  }
  const float scale = rsqrtf(block_sum(squares, scratch) * inverse_hidden + eps);
  write_scaled(held, weight, scale, out, packs);
}

template <typename T>
__global__ void swiglu_kernel(const T* gate_up_T2F, T* out_TF, int packs) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t row = blockIdx.y;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  const auto* gates = reinterpret_cast<const Pack<T>*>(gate_up_T2F) + row * 2 * packs;
  const Pack<T> gate = gates[i], up = gates[packs + i];
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    out.x[j] = from_float<T>(silu(to_float(gate.x[j])) * to_float(up.x[j]));
  }
  reinterpret_cast<Pack<T>*>(out_TF)[row * packs + i] = out;
}

__global__ void resolve_ids_kernel(int64_t* ids_T, const int32_t* sampled_R, int64_t rows) {
  launch_dependents();
  grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows && ids_T[i] < 0) ids_T[i] = sampled_R[-ids_T[i] - 1];
}

}  // namespace

void embedding(Number number, const int64_t* ids_T, const void* table_VH, void* out_TH,
               int64_t rows, int64_t hidden, Stream stream) {
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(hidden, Pack<T>::kSize);
    const int64_t packs = hidden / Pack<T>::kSize;
    launch(embedding_kernel<T>, dim3(rows), dim3(threads_for(packs)), 0, stream, ids_T,
           static_cast<const T*>(table_VH), static_cast<T*>(out_TH), packs);
  });
}

void add_rms_norm(Number number, const void* x_TH, const void* update_TH, const void* weight_H,
                  Number of_weight, void* sum_TH, void* out_TH, int64_t rows, int64_t hidden,
                  float eps, Stream stream) {
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(hidden, Pack<T>::kSize);
    const auto packs = static_cast<int>(hidden / Pack<T>::kSize);
    const int threads = threads_for(packs);
    if (packs > 4 * threads) throw std::runtime_error("rows of this length are not supported");
    const auto run = [&](auto weight_zero) {
      using W = decltype(weight_zero);
      const auto kernel =
          packs <= threads ? add_rms_norm_kernel<T, W, 1> : add_rms_norm_kernel<T, W, 4>;
      launch(kernel, dim3(rows), dim3(threads), 0, stream, static_cast<const T*>(x_TH),
             static_cast<const T*>(update_TH), static_cast<const W*>(weight_H),
             static_cast<T*>(sum_TH), static_cast<T*>(out_TH), packs,
             1.0F / static_cast<float>(hidden), eps);
    };
    if (of_weight == number) return run(zero);
    if (of_weight != Number::kFloat32)
      throw std::runtime_error("a norm's weight has the precision of the rows, or float32");
    run(float{});
  });
}

void add_partials_rms_norm(void* x_TH, const float* partials_STH, int num_splits,
                           const void* bias_H, const void* weight_H, void* out_TH, int64_t rows,
                           int64_t hidden, float eps, Stream stream) {
  using T = BFloat16;
  check_rows(hidden, Pack<T>::kSize);
  const auto packs = static_cast<int>(hidden / 4);
  const int threads = threads_for(packs);
  if (packs > 4 * threads) throw std::runtime_error("rows of this length are not supported");
  const auto kernel =
      packs <= threads ? add_parts_rms_norm_kernel<1> : add_parts_rms_norm_kernel<4>;
  launch(kernel, dim3(rows), dim3(threads), 0, stream, static_cast<T*>(x_TH), partials_STH,
         num_splits, static_cast<const T*>(bias_H), static_cast<const T*>(weight_H),
         static_cast<T*>(out_TH), packs, 1.0F / static_cast<float>(hidden), eps);
}

void swiglu(Number number, const void* gate_up_T2F, void* out_TF, int64_t rows, int64_t width,
            Stream stream) {
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(width, Pack<T>::kSize);
    const auto packs = static_cast<int>(width / Pack<T>::kSize);
    constexpr int kThreads = 128;
    constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension
    for (int64_t row = 0; row < rows; row += kMaxRows) {
      const int64_t count = rows - row < kMaxRows ? rows - row : kMaxRows;
      launch(swiglu_kernel<T>, dim3((packs + kThreads - 1) / kThreads, count), dim3(kThreads), 0,
             stream, static_cast<const T*>(gate_up_T2F) + row * 2 * width,
             static_cast<T*>(out_TF) + row * width, packs);
    }
  });
}

void resolve_ids(int64_t* ids_T, const int32_t* sampled_R, int64_t rows, Stream stream) {
  constexpr int kThreads = 256;
  launch(resolve_ids_kernel, dim3((rows + kThreads - 1) / kThreads), dim3(kThreads), 0, stream,
         ids_T, sampled_R, rows);
}

bool has_code_for_device() { return has_code(resolve_ids_kernel); }

}  // namespace slime::kernels::cuda
