#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/tensor_core.cuh"

/// Attention of rows over pages by matrix instructions, for prompts on processors without FlashInfer's tiles.
///
/// A wave has 16 neighbouring rows of the step and a query head. For each sequence among them it goes through the pages
/// that its rows see, 16 keys at a time:
///   scores [rows, keys] = Q K^T     a: Q, held from the beginning     b: K, two numbers at a time
///   out [rows, dims] += P V         a: P, through shared memory       b: V
/// Between the two a few lanes have a row each: running maximum and sum of its softmax. Rows of other sequences see no
/// key meanwhile, and keep what they have.

namespace slime::kernels::cuda {
namespace {

constexpr int kTileRows = 16;
static_assert(kPageTokens == 16);

/// kTiles: of 16 dims.
template <typename T, int kTiles, typename Layout>
__global__ void __launch_bounds__(Layout::kLanes)
    attend_rows_kernel(AttendCall call, const int64_t* positions_T, const int32_t* row_sequence_T,
                       Layout layout) {
  constexpr int kWords = Layout::kWords, kSums = Layout::kSums;
  constexpr int kRowLanes = Layout::kLanes / kTileRows, kOwnKeys = kPageTokens / kRowLanes;
  __shared__ float scores[kTileRows][kPageTokens + 1], by_row[kTileRows];
  __shared__ uint32_t weights[kTileRows][kPageTokens / 2 + 1];  // two neighbouring keys each
  launch_dependents();
  grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.y);
  constexpr int kDim = 16 * kTiles;
  const int kv_head = head / (call.num_heads / call.num_kv_heads);
  const int64_t first_row = int64_t{blockIdx.x} * kTileRows;
  const int count = static_cast<int>(min(int64_t{kTileRows}, call.rows - first_row));
  const auto pair_at = [](const T* at) { return *reinterpret_cast<const uint32_t*>(at); };

  uint32_t query[kTiles][kWords];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const int row = Layout::A::row(lane, w), k = 16 * t + Layout::A::k(lane, w);
      query[t][w] = row < count ? pair_at(static_cast<const T*>(call.q) +
                                          (first_row + row) * call.row_stride + head * kDim + k)
                                : 0U;
    }
  }
  const int own_row = lane / kRowLanes, own_key = lane % kRowLanes * kOwnKeys;
  const int64_t own_position = own_row < count ? positions_T[first_row + own_row] : -1;
  float out[kTiles][kSums] = {};
  float largest = -INFINITY, total = 0;  // of the own row; the total of the own keys

  for (int begin = 0, end = 0; begin < count; begin = end) {
    const int32_t sequence = row_sequence_T[first_row + begin];
    int64_t last = -1, lowest = positions_T[first_row + begin];
    for (; end < count && row_sequence_T[first_row + end] == sequence; ++end) {
      last = max(last, positions_T[first_row + end]);
      lowest = min(lowest, positions_T[first_row + end]);
    }
    const bool is_own = own_row >= begin && own_row < end;
    const int32_t* pages = call.paged.pages + call.paged.page_starts[sequence];
    const int64_t first = call.window > 0 && lowest >= call.window ? lowest - call.window + 1 : 0;
    for (int64_t page = first / kPageTokens; page <= last / kPageTokens; ++page) {
      const int64_t offset =
          (static_cast<int64_t>(pages[page]) * call.num_kv_heads + kv_head) * kPageTokens * kDim;
      const T* keys = static_cast<const T*>(call.paged.keys) + offset;
      const T* values = static_cast<const T*>(call.paged.values) + offset;
      float score[kSums] = {};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        uint32_t b[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w)
          b[w] = pair_at(keys + Layout::B::column(lane, w) * kDim + 16 * t + Layout::B::k(lane, w));
        multiply_tiles<T>(layout, score, query[t], b);
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        scores[Layout::C::row(lane, i)][Layout::C::column(lane, i)] = score[i];
      __syncthreads();

      float own[kOwnKeys], best = -INFINITY;
#pragma unroll
      for (int j = 0; j < kOwnKeys; ++j) {
        const int64_t key = page * kPageTokens + own_key + j;
        const bool is_seen =
            is_own && key <= own_position && (call.window == 0 || key > own_position - call.window);
        float x = scores[own_row][own_key + j] * call.scale;
        if (call.cap > 0) x = call.cap * tanhf(x / call.cap);
        own[j] = is_seen ? x : -INFINITY;
        best = fmaxf(best, own[j]);
      }
#pragma unroll
      for (int distance = 1; distance < kRowLanes; distance *= 2)
        best = fmaxf(best, shuffle_xor(best, distance));
      const float next = fmaxf(largest, best);
      const float base = next == -INFINITY ? 0.0F : next;  // a row may have seen no key yet
      const float shrink = expf(largest - base);
      largest = next;
      total *= shrink;
#pragma unroll
      for (int j = 0; j < kOwnKeys; j += 2) {
        const float a = expf(own[j] - base), b = expf(own[j + 1] - base);
        total += a + b;
        weights[own_row][(own_key + j) / 2] = pack<T>(a, b);
      }
      if (own_key == 0) by_row[own_row] = shrink;
      __syncthreads();

      uint32_t a[kWords];
      float scale[kSums];
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        a[w] = weights[Layout::A::row(lane, w)][Layout::A::k(lane, w) / 2];
#pragma unroll
      for (int i = 0; i < kSums; ++i) scale[i] = by_row[Layout::C::row(lane, i)];
      // Slots behind the last key may hold anything.
      const int valid = static_cast<int>(min(int64_t{kPageTokens}, last + 1 - page * kPageTokens));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        uint32_t b[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          const int k = Layout::B::k(lane, w), column = 16 * t + Layout::B::column(lane, w);
          const auto number = [&](int key) {
            return key < valid ? to_float(values[key * kDim + column]) : 0.0F;
          };
          b[w] = pack<T>(number(k), number(k + 1));
        }
#pragma unroll
        for (int i = 0; i < kSums; ++i) out[t][i] *= scale[i];
        multiply_tiles<T>(layout, out[t], a, b);
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kRowLanes; distance *= 2) total += shuffle_xor(total, distance);
  if (call.sinks_N != nullptr)
    total += expf(to_float(static_cast<const T*>(call.sinks_N)[head]) - largest);
  __syncthreads();  // all have read what the last page left there
  if (own_key == 0) by_row[own_row] = total;
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int row = Layout::C::row(lane, i), column = 16 * t + Layout::C::column(lane, i);
      if (row < count)
        static_cast<T*>(call.out_TC)[((first_row + row) * call.num_heads + head) * kDim + column] =
            from_float<T>(out[t][i] / by_row[row]);
    }
  }
}

template <typename T, int kTiles>
void run(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
         Stream stream) {
  with_tiles(stream, [&](auto layout) {
    using Layout = decltype(layout);
    const dim3 grid(static_cast<unsigned>((call.rows + kTileRows - 1) / kTileRows),
                    static_cast<unsigned>(call.num_heads));
    launch(attend_rows_kernel<T, kTiles, Layout>, grid, dim3(Layout::kLanes), 0, stream, call,
           positions_T, row_sequence_T, layout);
  });
}

template <typename T>
void run(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
         Stream stream) {
  switch (call.head_dim) {
    case 64:
      return run<T, 4>(call, positions_T, row_sequence_T, stream);
    case 96:
      return run<T, 6>(call, positions_T, row_sequence_T, stream);
    case 128:
      return run<T, 8>(call, positions_T, row_sequence_T, stream);
    default:
      return run<T, 16>(call, positions_T, row_sequence_T, stream);
  }
}

}  // namespace

bool has_attend_rows(Number number, int head_dim, bool is_fp8) {
  const bool has_size = head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
  return number != Number::kFloat32 && has_size && !is_fp8;
}

bool is_for_attend_rows(const AttendCall& call) {
  // Of fewer rows of a sequence most of a tile would be empty.
  constexpr int64_t kFewRows = 4;
  return attends_in_tiles() && has_attend_rows(call.number, call.head_dim, call.paged.is_fp8) &&
         call.rows >= kFewRows * call.paged.num_sequences;
}

void attend_rows(const AttendCall& call, const int64_t* positions_T, const int32_t* row_sequence_T,
                 Stream stream) {
  if (!has_attend_rows(call.number, call.head_dim, call.paged.is_fp8))
    throw std::runtime_error(
        "attention by matrix instructions has heads of 64, 96, 128 and 256 in 16 bits");
  call.number == Number::kBFloat16 ? run<BFloat16>(call, positions_T, row_sequence_T, stream)
                                   : run<Float16>(call, positions_T, row_sequence_T, stream);
}

}  // namespace slime::kernels::cuda
