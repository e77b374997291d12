#include "kernels/cuda/training/rows_backward.h"

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
      const float g = to_float(gate.x[j]), sigmoid = 1.0F / (1.0F + fast_exp(-g));
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
                     Stream stream) {
  launch(add_column_sums_kernel, dim3((columns + 31) / 32), dim3(32, 32), 0, stream, partial_BX,
         rows, columns, grad_X);
}

void rms_norm_backward(const NormBackwardCall& call, Stream stream) {
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
                     int64_t rows, int64_t width, Stream stream) {
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

void merge_attention(Number number, void* out_TND, float* logsumexp_TN, const void* more_TND,
                     const float* more_logsumexp_TN, int64_t rows, int64_t heads, int64_t head_dim,
                     Stream stream) {
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
