#include "kernels/cuda/attention/head_rotation.cuh"
#include "kernels/cuda/training/rows_backward.h"

namespace slime::kernels::cuda {
namespace {

constexpr int kHeadWarps = 8;
constexpr int kMaxHeadPairs = 2;  // pairs of a half per lane: head sizes up to 256

/// A warp takes one head of rows blockIdx.x, blockIdx.x + gridDim.x, ... A lane holds numbers 2
/// lane and 2 lane + 1 of each half (and those 64 further).
template <typename T>
__global__ void __launch_bounds__(32 * kHeadWarps)
    norm_rotate_backward_kernel(RotateBackwardCall call) {
  const RotateCall& shape = call.forward;
  const int lane = threadIdx.x % 32, head = blockIdx.y * kHeadWarps + threadIdx.x / 32;
  const int num_heads = shape.num_heads, num_kv_heads = shape.num_kv_heads, dim = shape.head_dim;
  if (head >= num_heads + 2 * num_kv_heads) return;
  const int half = dim / 2;
  const bool is_query = head < num_heads, is_value = head >= num_heads + num_kv_heads;
  const void* norm = is_value ? nullptr : is_query ? shape.q_norm_D : shape.k_norm_D;
  const auto norm_at = [&](int i) {
    return shape.has_float_norms ? static_cast<const float*>(norm)[i]
                                 : to_float(static_cast<const T*>(norm)[i]);
  };
  grid_dependency_wait();
  float weight[2][kMaxHeadPairs][2] = {}, dweight[2][kMaxHeadPairs][2] = {};
  if (norm != nullptr) {
#pragma unroll
    for (int p = 0; p < kMaxHeadPairs; ++p) {
      const int i = 2 * lane + 64 * p;
      if (i >= half) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        weight[0][p][j] = norm_at(i + j);
        weight[1][p][j] = norm_at(half + i + j);
      }
    }
  }
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const int64_t at = (row * (num_heads + 2 * num_kv_heads) + head) * dim;
    const T* dys = static_cast<const T*>(call.dy_TE) + at;
    T* out = static_cast<T*>(shape.out_TE) + at;
    const int64_t position = is_value ? 0 : shape.positions_T[row];
    float g[2][kMaxHeadPairs][2], n[2][kMaxHeadPairs][2];
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kMaxHeadPairs; ++p) {
      const int i = 2 * lane + 64 * p;
      if (i >= half) continue;
      const auto a = *reinterpret_cast<const Pack<T, 2>*>(dys + i),
                 b = *reinterpret_cast<const Pack<T, 2>*>(dys + half + i);
      if (is_value) {
        *reinterpret_cast<Pack<T, 2>*>(out + i) = a;
        *reinterpret_cast<Pack<T, 2>*>(out + half + i) = b;
        continue;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float cosine = shape.cos_PR[position * half + i + j],
                    sine = shape.sin_PR[position * half + i + j];
        const float da = to_float(a.x[j]), db = to_float(b.x[j]);
        g[0][p][j] = da * cosine + db * sine;
        g[1][p][j] = db * cosine - da * sine;
      }
      if (norm == nullptr) continue;
      const T* xs = static_cast<const T*>(shape.qkv_TE) + at;
      const auto xa = *reinterpret_cast<const Pack<T, 2>*>(xs + i),
                 xb = *reinterpret_cast<const Pack<T, 2>*>(xs + half + i);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        n[0][p][j] = to_float(xa.x[j]);
        n[1][p][j] = to_float(xb.x[j]);
        squares += n[0][p][j] * n[0][p][j] + n[1][p][j] * n[1][p][j];
      }
    }
    if (is_value) continue;
    if (norm != nullptr) {
      const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(dim) + shape.eps);
      float sum = 0;  // of g w n
#pragma unroll
      for (int p = 0; p < kMaxHeadPairs; ++p) {
        if (2 * lane + 64 * p >= half) continue;
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            n[side][p][j] *= scale;
            dweight[side][p][j] += g[side][p][j] * n[side][p][j];
            g[side][p][j] *= weight[side][p][j];
            sum += g[side][p][j] * n[side][p][j];
          }
      }
      const float mean = warp_sum(sum) / static_cast<float>(dim);
#pragma unroll
      for (int p = 0; p < kMaxHeadPairs; ++p) {
        if (2 * lane + 64 * p >= half) continue;
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            g[side][p][j] = scale * (g[side][p][j] - n[side][p][j] * mean);
      }
    }
#pragma unroll
    for (int p = 0; p < kMaxHeadPairs; ++p) {
      const int i = 2 * lane + 64 * p;
      if (i >= half) continue;
      Pack<T, 2> a, b;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        a.x[j] = from_float<T>(g[0][p][j]);
        b.x[j] = from_float<T>(g[1][p][j]);
      }
      *reinterpret_cast<Pack<T, 2>*>(out + i) = a;
      *reinterpret_cast<Pack<T, 2>*>(out + half + i) = b;
    }
  }
  float* partial = is_query ? call.q_partial_BD : call.k_partial_BD;
  if (norm == nullptr || partial == nullptr) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (is_query ? num_heads : num_kv_heads) +
                        (is_query ? head : head - num_heads);
#pragma unroll
  for (int p = 0; p < kMaxHeadPairs; ++p) {
    const int i = 2 * lane + 64 * p;
    if (i >= half) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      partial[first * dim + i + j] = dweight[0][p][j];
      partial[first * dim + half + i + j] = dweight[1][p][j];
    }
  }
}

constexpr int kWideThreads = 128;

/// The same with 16-byte accesses, for 16-bit rows: kDim / 16 lanes have a head, each eight pairs of
/// numbers that are half a head apart.
template <typename T, int kDim>
__global__ void __launch_bounds__(kWideThreads)
    norm_rotate_backward_wide_kernel(RotateBackwardCall call) {
  constexpr int kLanes = kDim / 16, kHalf = kDim / 2, kOwn = 8;
  using Numbers = Pack<T, kOwn>;
  using Floats = Pack<float, kOwn>;
  const RotateCall& shape = call.forward;
  const int num_heads = shape.num_heads, num_kv_heads = shape.num_kv_heads;
  const int heads = num_heads + 2 * num_kv_heads;
  const int head = static_cast<int>(blockIdx.y * kWideThreads + threadIdx.x) / kLanes;
  const int first = static_cast<int>(threadIdx.x) % kLanes * kOwn;
  // All lanes stay for the sums.
  const bool is_there = head < heads, is_query = head < num_heads;
  const bool rotates = head < num_heads + num_kv_heads;
  const void* norm = !rotates ? nullptr : is_query ? shape.q_norm_D : shape.k_norm_D;
  grid_dependency_wait();
  float weight[2][kOwn] = {}, dweight[2][kOwn] = {};
  if (norm != nullptr) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int begin = first + kHalf * side;
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        weight[side][i] = shape.has_float_norms ? static_cast<const float*>(norm)[begin + i]
                                                : to_float(static_cast<const T*>(norm)[begin + i]);
    }
  }
  for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const int64_t at = (row * heads + head) * kDim + first;
    float g[2][kOwn] = {}, n[2][kOwn] = {}, squares[kOwn] = {};
    if (is_there) {
      const T* dy = static_cast<const T*>(call.dy_TE) + at;
      const Numbers low = *reinterpret_cast<const Numbers*>(dy);
      const Numbers high = *reinterpret_cast<const Numbers*>(dy + kHalf);
      if (norm != nullptr) {
        const T* x = static_cast<const T*>(shape.qkv_TE) + at;
        const Numbers x_low = *reinterpret_cast<const Numbers*>(x);
        const Numbers x_high = *reinterpret_cast<const Numbers*>(x + kHalf);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          n[0][i] = to_float(x_low.x[i]);
          n[1][i] = to_float(x_high.x[i]);
          squares[i] = square_sum(n[0][i], n[1][i]);
        }
      }
      if (rotates) {
        const int64_t angle = shape.positions_T[row] * kHalf + first;
        const auto cosine = *reinterpret_cast<const Floats*>(shape.cos_PR + angle);
        const auto sine = *reinterpret_cast<const Floats*>(shape.sin_PR + angle);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          const float a = to_float(low.x[i]), b = to_float(high.x[i]);
          g[0][i] = a * cosine.x[i] + b * sine.x[i];
          g[1][i] = b * cosine.x[i] - a * sine.x[i];
        }
      } else {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          g[0][i] = to_float(low.x[i]);
          g[1][i] = to_float(high.x[i]);
        }
      }
    }
    const float scale =
        rsqrtf(lane_sum<kLanes>(neighbour_sum(squares)) / static_cast<float>(kDim) + shape.eps);
    float products[kOwn] = {};  // g w n
    if (norm != nullptr) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          n[side][i] *= scale;
          dweight[side][i] += g[side][i] * n[side][i];
          g[side][i] *= weight[side][i];
          products[i] += g[side][i] * n[side][i];
        }
      }
    }
    const float mean = lane_sum<kLanes>(neighbour_sum(products)) / static_cast<float>(kDim);
    if (!is_there) continue;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      Numbers out;
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        out.x[i] =
            from_float<T>(norm != nullptr ? scale * (g[side][i] - n[side][i] * mean) : g[side][i]);
      *reinterpret_cast<Numbers*>(static_cast<T*>(shape.out_TE) + at + kHalf * side) = out;
    }
  }
  float* partial = is_query ? call.q_partial_BD : call.k_partial_BD;
  if (norm == nullptr || partial == nullptr) return;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * (is_query ? num_heads : num_kv_heads) +
                      (is_query ? head : head - num_heads);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      partial[own * kDim + kHalf * side + first + i] = dweight[side][i];
  }
}

bool is_wide(const RotateBackwardCall& call) {
  const RotateCall& shape = call.forward;
  const auto is_aligned = [](const void* x, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(x) % bytes == 0;
  };
  return shape.number != Number::kFloat32 &&
         (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
         is_aligned(call.dy_TE, 16) && is_aligned(shape.qkv_TE, 16) &&
         is_aligned(shape.out_TE, 16) && is_aligned(shape.cos_PR, 32) &&
         is_aligned(shape.sin_PR, 32);
}

template <typename T>
void run_wide(const RotateBackwardCall& call, Stream stream) {
  const RotateCall& shape = call.forward;
  const int threads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim / 16;
  const dim3 grid(static_cast<unsigned>(num_partial_rows()),
                  (threads + kWideThreads - 1) / kWideThreads);
  const auto kernel = shape.head_dim == 64    ? norm_rotate_backward_wide_kernel<T, 64>
                      : shape.head_dim == 128 ? norm_rotate_backward_wide_kernel<T, 128>
                                              : norm_rotate_backward_wide_kernel<T, 256>;
  launch(kernel, grid, dim3(kWideThreads), 0, stream, call);
}

}  // namespace

void norm_rotate_backward(const RotateBackwardCall& call, Stream stream) {
  const RotateCall& shape = call.forward;
  if (shape.head_dim > 128 * kMaxHeadPairs || shape.head_dim % 4 != 0)
    throw std::runtime_error("head sizes are multiples of 4 up to 256");
  if (is_wide(call)) {
    return shape.number == Number::kBFloat16 ? run_wide<BFloat16>(call, stream)
                                             : run_wide<Float16>(call, stream);
  }
  const int heads = shape.num_heads + 2 * shape.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(num_partial_rows()), (heads + kHeadWarps - 1) / kHeadWarps);
  with_type(shape.number, [&](auto zero) {
    launch(norm_rotate_backward_kernel<decltype(zero)>, grid, dim3(32 * kHeadWarps), 0, stream,
           call);
  });
}

}  // namespace slime::kernels::cuda
