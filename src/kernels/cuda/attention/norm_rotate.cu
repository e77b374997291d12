#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/head_rotation.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // heads per block
constexpr int kWideThreads = 256;
constexpr int kMaxPairs = 4;  // pairs of numbers per lane: head sizes up to 256

/// Number i of a norm's weight.
template <typename T>
__device__ float weight_at(const RotateCall& call, const void* norm_D, int i) {
  return call.has_float_norms ? static_cast<const float*>(norm_D)[i]
                              : to_float(static_cast<const T*>(norm_D)[i]);
}

/// One warp per head of a row. A lane holds the pairs (i, i + D / 2) with i = lane, lane + 32, ...
template <typename T>
__global__ void __launch_bounds__(32 * kWarps) norm_rotate_kernel(RotateCall call) {
  launch_dependents();
  const int lane = threadIdx.x % 32;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  const int num_heads = call.num_heads, num_kv_heads = call.num_kv_heads;
  if (head >= num_heads + 2 * num_kv_heads) return;
  const int half = call.head_dim / 2;
  const bool is_query = head < num_heads;
  const bool is_value = head >= num_heads + num_kv_heads;
  const void* norm = is_query ? call.q_norm_D : call.k_norm_D;
  grid_dependency_wait();

  const int64_t row = blockIdx.x;
  const int64_t in_row = row * (num_heads + 2 * num_kv_heads) * call.head_dim;
  const T* in = static_cast<const T*>(call.qkv_TE) + in_row + head * call.head_dim;
  T* out = static_cast<T*>(call.out_TE) + in_row + head * call.head_dim;
  Fp8Code* narrow = nullptr;
  if (!is_query && call.slot_T != nullptr) {
    const int kv_head = (head - num_heads) % num_kv_heads;
    const int64_t slot = call.slot_T[row];
    const int64_t offset =
        ((slot / kPageTokens * num_kv_heads + kv_head) * kPageTokens + slot % kPageTokens) *
        call.head_dim;
    void* cache = is_value ? call.values : call.keys;
    out = static_cast<T*>(cache) + offset;
    if (call.is_fp8) narrow = static_cast<Fp8Code*>(cache) + offset;
  }
  float a[kMaxPairs] = {}, b[kMaxPairs] = {};
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    if (i >= half) continue;
    a[p] = to_float(in[i]);
    b[p] = to_float(in[i + half]);
  }
  float scale = 1;
  if (!is_value && norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kMaxPairs; ++p)
      if (32 * p < half) squares += lane_sum<32>(square_sum(a[p], b[p]));
    scale = norm_scale(squares, call.head_dim, call.eps);
  }
  const int64_t position = is_value ? 0 : call.positions_T[row];
#pragma unroll
  for (int p = 0; p < kMaxPairs; ++p) {
    const int i = lane + 32 * p;
    if (i >= half) continue;
    if (!is_value) {
      if (norm != nullptr) {
        a[p] = normed(a[p], scale, weight_at<T>(call, norm, i));
        b[p] = normed(b[p], scale, weight_at<T>(call, norm, i + half));
      }
      rotate_pair(a[p], b[p], call.cos_PR[position * half + i], call.sin_PR[position * half + i]);
    }
    if (narrow != nullptr) {
      narrow[i] = to_fp8(a[p]);
      narrow[i + half] = to_fp8(b[p]);
      continue;
    }
    out[i] = from_float<T>(a[p]);
    out[i + half] = from_float<T>(b[p]);
  }
}

/// The same with 16-byte accesses, for 16-bit rows: kDim / 16 lanes have a head, each eight pairs.
template <typename T, int kDim>
__global__ void __launch_bounds__(kWideThreads) norm_rotate_wide_kernel(RotateCall call) {
  constexpr int kLanes = kDim / 16, kHalf = kDim / 2, kOwn = 8;
  using Numbers = Pack<T, kOwn>;
  launch_dependents();
  const int num_heads = call.num_heads, num_kv_heads = call.num_kv_heads;
  const int heads = num_heads + 2 * num_kv_heads;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kWideThreads + threadIdx.x) / kLanes;
  // All lanes stay for the sums.
  const bool is_there = at < call.rows * heads;
  const int64_t row = is_there ? at / heads : 0;
  const int head = static_cast<int>(is_there ? at % heads : 0);
  const int first = static_cast<int>(threadIdx.x) % kLanes * kOwn;
  const bool is_query = head < num_heads, is_value = head >= num_heads + num_kv_heads;
  const void* norm = is_query ? call.q_norm_D : call.k_norm_D;
  grid_dependency_wait();

  const int64_t offset = (row * heads + head) * kDim + first;
  const T* in = static_cast<const T*>(call.qkv_TE) + offset;
  const Numbers low = *reinterpret_cast<const Numbers*>(in);
  const Numbers high = *reinterpret_cast<const Numbers*>(in + kHalf);
  float a[kOwn], b[kOwn], squares[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    a[i] = to_float(low.x[i]);
    b[i] = to_float(high.x[i]);
    squares[i] = square_sum(a[i], b[i]);
  }
  const float sum = lane_sum<kLanes>(neighbour_sum(squares));
  if (!is_there) return;
  if (!is_value) {
    if (norm != nullptr) {
      const float scale = norm_scale(sum, kDim, call.eps);
      const auto apply = [&](const auto& norm_low, const auto& norm_high) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          a[i] = normed(a[i], scale, to_float(norm_low.x[i]));
          b[i] = normed(b[i], scale, to_float(norm_high.x[i]));
        }
      };
      if (call.has_float_norms) {
        const auto* weight = static_cast<const float*>(norm) + first;
        apply(*reinterpret_cast<const Pack<float, kOwn>*>(weight),
              *reinterpret_cast<const Pack<float, kOwn>*>(weight + kHalf));
      } else {
        const T* weight = static_cast<const T*>(norm) + first;
        apply(*reinterpret_cast<const Numbers*>(weight),
              *reinterpret_cast<const Numbers*>(weight + kHalf));
      }
    }
    const int64_t angle = call.positions_T[row] * kHalf + first;
    const auto cosine = *reinterpret_cast<const Pack<float, kOwn>*>(call.cos_PR + angle);
    const auto sine = *reinterpret_cast<const Pack<float, kOwn>*>(call.sin_PR + angle);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) rotate_pair(a[i], b[i], cosine.x[i], sine.x[i]);
  }
  const bool is_cached = !is_query && call.slot_T != nullptr;
  if (is_cached && call.is_fp8) {  // rows that are kept hold what the cache does
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      a[i] = from_fp8(to_fp8(a[i]));
      b[i] = from_fp8(to_fp8(b[i]));
    }
  }
  Numbers out_low, out_high;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    out_low.x[i] = from_float<T>(a[i]);
    out_high.x[i] = from_float<T>(b[i]);
  }
  const auto store = [&](T* out) {
    *reinterpret_cast<Numbers*>(out) = out_low;
    *reinterpret_cast<Numbers*>(out + kHalf) = out_high;
  };
  if (!is_cached || call.keeps_keys) store(static_cast<T*>(call.out_TE) + offset);
  if (!is_cached) return;
  const int64_t slot = call.slot_T[row];
  const int kv_head = (head - num_heads) % num_kv_heads;
  const int64_t cached =
      ((slot / kPageTokens * num_kv_heads + kv_head) * kPageTokens + slot % kPageTokens) * kDim +
      first;
  void* cache = is_value ? call.values : call.keys;
  if (!call.is_fp8) return store(static_cast<T*>(cache) + cached);
  Pack<Fp8Code, kOwn> narrow_low, narrow_high;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    narrow_low.x[i] = to_fp8(a[i]);
    narrow_high.x[i] = to_fp8(b[i]);
  }
  auto* out = static_cast<Fp8Code*>(cache) + cached;
  *reinterpret_cast<Pack<Fp8Code, kOwn>*>(out) = narrow_low;
  *reinterpret_cast<Pack<Fp8Code, kOwn>*>(out + kHalf) = narrow_high;
}

bool is_wide(const RotateCall& call) {
  bool is_aligned = true;
  for (const void* x :
       {call.qkv_TE, static_cast<const void*>(call.out_TE), call.q_norm_D, call.k_norm_D,
        static_cast<const void*>(call.keys), static_cast<const void*>(call.values)})
    is_aligned &= reinterpret_cast<uintptr_t>(x) % 16 == 0;
  for (const void* x :
       {static_cast<const void*>(call.cos_PR), static_cast<const void*>(call.sin_PR),
        call.has_float_norms ? call.q_norm_D : nullptr,
        call.has_float_norms ? call.k_norm_D : nullptr})
    is_aligned &= reinterpret_cast<uintptr_t>(x) % 32 == 0;
  return is_aligned && call.number != Number::kFloat32 &&
         (call.head_dim == 64 || call.head_dim == 128 || call.head_dim == 256);
}

template <typename T>
void run_wide(const RotateCall& call, Stream stream) {
  const int64_t heads = call.rows * (call.num_heads + 2 * call.num_kv_heads);
  const int64_t threads = heads * call.head_dim / 16;
  const auto kernel = call.head_dim == 64    ? norm_rotate_wide_kernel<T, 64>
                      : call.head_dim == 128 ? norm_rotate_wide_kernel<T, 128>
                                             : norm_rotate_wide_kernel<T, 256>;
  launch(kernel, dim3((threads + kWideThreads - 1) / kWideThreads), dim3(kWideThreads), 0, stream,
         call);
}

}  // namespace

void norm_rotate(const RotateCall& call, Stream stream) {
  if (call.head_dim > 64 * kMaxPairs)
    throw std::runtime_error("head sizes above 256 are not supported");
  if (is_wide(call)) {
    return call.number == Number::kBFloat16 ? run_wide<BFloat16>(call, stream)
                                            : run_wide<Float16>(call, stream);
  }
  if (call.keeps_keys) throw std::runtime_error("rotated keys are kept by the wide kernel alone");
  const int heads = call.num_heads + 2 * call.num_kv_heads;
  const dim3 grid(call.rows, (heads + kWarps - 1) / kWarps);
  with_type(call.number, [&](auto zero) {
    launch(norm_rotate_kernel<decltype(zero)>, grid, dim3(32 * kWarps), 0, stream, call);
  });
}

}  // namespace slime::kernels::cuda
