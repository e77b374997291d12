#include "kernels/cuda/training/rows_backward.h"

#include "kernels/cuda/attention/head_rotation.cuh"

namespace slime::kernels::cuda {
namespace {

constexpr int kPartialRows = 528;  // four blocks on each of 132 multiprocessors
constexpr int kMaxThreads = 1024;

/// Sums of two numbers over the thread block, in every thread. `scratch`: 66 floats of shared
/// memory.
__device__ inline float2 block_sum2(float2 x, float2* scratch) {
  x = {warp_sum(x.x), warp_sum(x.y)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // scratch of the row before has been read
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  const int num_warps = (blockDim.x + 31) / 32;
  const float2 mine = lane < num_warps ? scratch[lane] : float2{0, 0};
  return {warp_sum(mine.x), warp_sum(mine.y)};
}

__global__ void add_column_sums_kernel(const float* partial_BX, int64_t rows, int64_t columns,
                                       float* grad_X) {
  grid_dependency_wait();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  __shared__ float sums[32][33];
  float sum = 0;
  if (column < columns)
    for (int64_t row = threadIdx.y; row < rows; row += 32)
      sum += partial_BX[row * columns + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const float total = warp_sum(sums[threadIdx.x][threadIdx.y]);
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && mine < columns) grad_X[mine] += total;
}

/// A row's numbers of one thread.
template <typename T, int kHeld>
struct NormRow {
  Pack<T> x[kHeld], dy[kHeld], dsum[kHeld];

  __device__ void load(const NormBackwardCall& call, int64_t row, int packs) {
    const auto* xs = static_cast<const Pack<T>*>(call.x_TH) + row * packs;
    const auto* dys = static_cast<const Pack<T>*>(call.dy_TH) + row * packs;
    const auto* dsums = static_cast<const Pack<T>*>(call.dsum_TH) + row * packs;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = threadIdx.x + h * blockDim.x;
      if (i >= packs) continue;
      x[h] = xs[i];
      dy[h] = dys[i];
      if (call.dsum_TH != nullptr) dsum[h] = dsums[i];
    }
  }
};

/// A thread block takes rows blockIdx.x, blockIdx.x + gridDim.x, ...; a thread keeps its columns of
/// the weight and of the weight's gradient in registers. Where there are registers for it, the next
/// row is on its way while the block sums this one up.
template <typename T, typename W, int kHeld>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_backward_kernel(NormBackwardCall call) {
  __shared__ float2 scratch[32];
  constexpr int kSize = Pack<T>::kSize;
  constexpr bool kAhead = kHeld == 1;
  const auto packs = static_cast<int>(call.hidden / kSize);
  const float inverse_hidden = 1.0F / static_cast<float>(call.hidden);
  grid_dependency_wait();
  Pack<W, kSize> weight[kHeld];
  float dweight[kHeld][kSize] = {};
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i < packs) weight[h] = static_cast<const Pack<W, kSize>*>(call.weight_H)[i];
  }
  NormRow<T, kHeld> own;
  if (kAhead && blockIdx.x < call.rows) own.load(call, blockIdx.x, packs);
  for (int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    NormRow<T, kAhead ? kHeld : 1> next;
    if constexpr (kAhead) {
      if (row + gridDim.x < call.rows) next.load(call, row + gridDim.x, packs);
    } else {
      own.load(call, row, packs);
    }
    float2 sums{0, 0};  // x^2, g x
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (threadIdx.x + h * blockDim.x >= packs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float value = to_float(own.x[h].x[j]);
        sums.x += value * value;
        sums.y += to_float(own.dy[h].x[j]) * to_float(weight[h].x[j]) * value;
      }
    }
    sums = block_sum2(sums, scratch);
    const float scale = rsqrtf(sums.x * inverse_hidden + call.eps);
    const float mean = sums.y * scale * inverse_hidden;  // of g n
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int i = threadIdx.x + h * blockDim.x;
      if (i >= packs) continue;
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float normed = to_float(own.x[h].x[j]) * scale, up = to_float(own.dy[h].x[j]);
        dweight[h][j] += up * normed;
        float dx = scale * (up * to_float(weight[h].x[j]) - normed * mean);
        if (call.dsum_TH != nullptr) dx += to_float(own.dsum[h].x[j]);
        out.x[j] = from_float<T>(dx);
      }
      (static_cast<Pack<T>*>(call.dx_TH) + row * packs)[i] = out;
    }
    if constexpr (kAhead) own = next;
  }
  if (call.partial_BH == nullptr) return;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int i = threadIdx.x + h * blockDim.x;
    if (i >= packs) continue;
    float* to = call.partial_BH + static_cast<int64_t>(blockIdx.x) * call.hidden + i * kSize;
#pragma unroll
    for (int j = 0; j < kSize; ++j) to[j] = dweight[h][j];
  }
}

template <typename T>
__global__ void swiglu_backward_kernel(const T* dy_TF, const T* gate_up_T2F, T* dgate_up_T2F,
                                       int64_t rows, int packs) {
  grid_dependency_wait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const auto* gates = reinterpret_cast<const Pack<T>*>(gate_up_T2F) + row * 2 * packs;
    const Pack<T> gate = gates[i], up = gates[packs + i];
    const Pack<T> dy = (reinterpret_cast<const Pack<T>*>(dy_TF) + row * packs)[i];
    Pack<T> dgate, dup;
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      const float g = to_float(gate.x[j]), sigmoid = 1.0F / (1.0F + __expf(-g));
      const float slope = to_float(dy.x[j]);
      dgate.x[j] =
          from_float<T>(slope * to_float(up.x[j]) * sigmoid * (1.0F + g * (1.0F - sigmoid)));
      dup.x[j] = from_float<T>(slope * g * sigmoid);
    }
    auto* to = reinterpret_cast<Pack<T>*>(dgate_up_T2F) + row * 2 * packs;
    to[i] = dgate;
    to[packs + i] = dup;
  }
}

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
void run_wide(const RotateBackwardCall& call, cudaStream_t stream) {
  const RotateCall& shape = call.forward;
  const int threads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim / 16;
  const dim3 grid(kPartialRows, (threads + kWideThreads - 1) / kWideThreads);
  const auto kernel = shape.head_dim == 64    ? norm_rotate_backward_wide_kernel<T, 64>
                      : shape.head_dim == 128 ? norm_rotate_backward_wide_kernel<T, 128>
                                              : norm_rotate_backward_wide_kernel<T, 256>;
  launch(kernel, grid, dim3(kWideThreads), 0, stream, call);
}

/// A thread block has `rows` of [row and head]; a thread a pack of one of them.
constexpr int kMergeThreads = 256;
template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_attention_kernel(Pack<T>* out, float* logsumexp_TN, const Pack<T>* more,
                           const float* more_logsumexp_TN, int64_t count, int packs, int rows) {
  const int row = static_cast<int>(threadIdx.x) / packs;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * rows + row;
  const bool has_row = row < rows && at < count;
  grid_dependency_wait();
  float sum = 0;
  bool is_changed = false;
  if (has_row) {
    const float a = logsumexp_TN[at], b = more_logsumexp_TN[at];
    is_changed = b != -INFINITY;
    if (is_changed) {
      const float high = fmaxf(a, b);
      sum = high + logf(expf(a - high) + expf(b - high));
      const float share = expf(a - sum), other = expf(b - sum);
      const int64_t i = at * packs + threadIdx.x % packs;
      Pack<T> x = out[i];
      const Pack<T> y = more[i];
#pragma unroll
      for (int k = 0; k < Pack<T>::kSize; ++k)
        x.x[k] = from_float<T>(share * to_float(x.x[k]) + other * to_float(y.x[k]));
      out[i] = x;
    }
  }
  __syncthreads();  // all have read it
  if (is_changed && threadIdx.x % packs == 0) logsumexp_TN[at] = sum;
}

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

}  // namespace

int64_t num_partial_rows() { return kPartialRows; }

void add_column_sums(const float* partial_BX, int64_t rows, int64_t columns, float* grad_X,
                     cudaStream_t stream) {
  launch(add_column_sums_kernel, dim3((columns + 31) / 32), dim3(32, 32), 0, stream, partial_BX,
         rows, columns, grad_X);
}

void rms_norm_backward(const NormBackwardCall& call, cudaStream_t stream) {
  with_type(call.number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(call.hidden, Pack<T>::kSize);
    const int64_t packs = call.hidden / Pack<T>::kSize;
    const int threads = threads_for(packs);
    if (packs > 4 * threads) throw std::runtime_error("rows of this length are not supported");
    const auto run = [&](auto weight_zero) {
      using W = decltype(weight_zero);
      const auto kernel =
          packs <= threads ? rms_norm_backward_kernel<T, W, 1> : rms_norm_backward_kernel<T, W, 4>;
      launch(kernel, dim3(kPartialRows), dim3(threads), 0, stream, call);
    };
    call.has_float_weight ? run(float{}) : run(zero);
  });
}

void swiglu_backward(Number number, const void* dy_TF, const void* gate_up_T2F, void* dgate_up_T2F,
                     int64_t rows, int64_t width, cudaStream_t stream) {
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(width, Pack<T>::kSize);
    const auto packs = static_cast<int>(width / Pack<T>::kSize);
    constexpr int kThreads = 128;
    const int64_t most = 32768;  // of a grid's second dimension
    launch(swiglu_backward_kernel<T>,
           dim3((packs + kThreads - 1) / kThreads, rows < most ? rows : most), dim3(kThreads), 0,
           stream, static_cast<const T*>(dy_TF), static_cast<const T*>(gate_up_T2F),
           static_cast<T*>(dgate_up_T2F), rows, packs);
  });
}

void norm_rotate_backward(const RotateBackwardCall& call, cudaStream_t stream) {
  const RotateCall& shape = call.forward;
  if (shape.head_dim > 128 * kMaxHeadPairs || shape.head_dim % 4 != 0)
    throw std::runtime_error("head sizes are multiples of 4 up to 256");
  if (is_wide(call)) {
    return shape.number == Number::kBFloat16 ? run_wide<__nv_bfloat16>(call, stream)
                                             : run_wide<__half>(call, stream);
  }
  const int heads = shape.num_heads + 2 * shape.num_kv_heads;
  const dim3 grid(kPartialRows, (heads + kHeadWarps - 1) / kHeadWarps);
  with_type(shape.number, [&](auto zero) {
    launch(norm_rotate_backward_kernel<decltype(zero)>, grid, dim3(32 * kHeadWarps), 0, stream,
           call);
  });
}

void merge_attention(Number number, void* out_TND, float* logsumexp_TN, const void* more_TND,
                     const float* more_logsumexp_TN, int64_t rows, int64_t heads, int64_t head_dim,
                     cudaStream_t stream) {
  const int64_t count = rows * heads;
  with_type(number, [&](auto zero) {
    using T = decltype(zero);
    check_rows(head_dim, Pack<T>::kSize);
    const int packs = static_cast<int>(head_dim) / Pack<T>::kSize;
    if (packs > kMergeThreads) throw std::runtime_error("heads of this size are not supported");
    const int rows_of_block = kMergeThreads / packs;
    launch(merge_attention_kernel<T>, dim3((count + rows_of_block - 1) / rows_of_block),
           dim3(kMergeThreads), 0, stream, static_cast<Pack<T>*>(out_TND), logsumexp_TN,
           static_cast<const Pack<T>*>(more_TND), more_logsumexp_TN, count, packs, rows_of_block);
  });
}

}  // namespace slime::kernels::cuda
