#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/paged_attention_avx512.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/rows_avx2.h"
#include "kernels/cpu/vector_avx2.h"

// Two register tiles do all the work (M query rows at a time, M <= 6 so that M x 2 accumulators fit
// the registers):
//   scores  [M, 16]     += query [M, D] * page of keys [D, 16]
//   out     [M, 8 * W]  += weight [M, slots] * page of values [slots, 8 * W]
// A query row sums over D and over slots one after the other whatever M is, hence the same bits in
// every batch. No lambdas: they do not inherit the target attribute.

namespace slime::kernels {
namespace {

constexpr int64_t kMaxRows = 6;

float value_of(float x) { return x; }
float value_of(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

void assign(float& to, float value) { to = value; }
void assign(uint16_t& to, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  to = std::isnan(value) ? 0x7FC0
                         : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/// scores_M64[m, column .. column + 16) = query_MS[m, :] . keys_D16
template <int M, typename T>
SLIME_AVX2_INLINE void score_page(const float* query_MS, int64_t stride, const T* keys_D16,
                                  int64_t head_dim, float* scores_M64) {
  __m256 low[M];
  __m256 high[M];
  for (int m = 0; m < M; ++m) low[m] = high[m] = _mm256_setzero_ps();
  for (int64_t d = 0; d < head_dim; ++d) {
    const __m256 key_low = load8(keys_D16 + d * kPageTokens);
    const __m256 key_high = load8(keys_D16 + d * kPageTokens + 8);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const __m256 query = _mm256_broadcast_ss(query_MS + m * stride + d);
      low[m] = _mm256_fmadd_ps(query, key_low, low[m]);
      high[m] = _mm256_fmadd_ps(query, key_high, high[m]);
    }
  }
  for (int m = 0; m < M; ++m) {
    _mm256_storeu_ps(scores_M64 + m * kBlockTokens, low[m]);
    _mm256_storeu_ps(scores_M64 + m * kBlockTokens + 8, high[m]);
  }
}

template <int M, int W, typename T>
SLIME_AVX2_INLINE void add_values(const float* weight_M64, const T* const* value_pages,
                                  int64_t num_slots, int64_t stride, int64_t dim, float* out_MS) {
  __m256 sum[M][W];
  for (int m = 0; m < M; ++m) {
    for (int w = 0; w < W; ++w) sum[m][w] = _mm256_loadu_ps(out_MS + m * stride + dim + 8 * w);
  }
  for (int64_t first = 0; first < num_slots; first += kPageTokens) {
    const T* values = value_pages[first / kPageTokens] + dim;
    const int64_t slots = std::min(kPageTokens, num_slots - first);
    for (int64_t slot = 0; slot < slots; ++slot, values += stride) {
      __m256 value[W];
      for (int w = 0; w < W; ++w) value[w] = load8(values + 8 * w);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const __m256 weight = _mm256_broadcast_ss(weight_M64 + m * kBlockTokens + first + slot);
        for (int w = 0; w < W; ++w) sum[m][w] = _mm256_fmadd_ps(weight, value[w], sum[m][w]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int w = 0; w < W; ++w) _mm256_storeu_ps(out_MS + m * stride + dim + 8 * w, sum[m][w]);
  }
}

template <int M, typename T>
SLIME_AVX2 void score_pages(const float* query_MS, int64_t stride, const T* const* key_pages,
                            int64_t num_pages, int64_t head_dim, float* scores_M64) {
  for (int64_t page = 0; page < num_pages; ++page) {
    score_page<M>(query_MS, stride, key_pages[page], head_dim, scores_M64 + page * kPageTokens);
  }
}

/// The same from rows of keys, as values lie: each score is a sum over the row.
template <int M, typename T>
SLIME_AVX2 void score_rows(const float* query_MS, int64_t stride, const T* const* pages,
                           int64_t num_slots, int64_t head_dim, float* scores_M64) {
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const T* key_D = pages[slot / kPageTokens] + slot % kPageTokens * stride;
    __m256 sum[M];
    for (int m = 0; m < M; ++m) sum[m] = _mm256_setzero_ps();
    int64_t d = 0;
    for (; d + 8 <= head_dim; d += 8) {
      const __m256 key = load8(key_D + d);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m)
        sum[m] = _mm256_fmadd_ps(load8(query_MS + m * stride + d), key, sum[m]);
    }
    for (int m = 0; m < M; ++m) {
      float score = sum8(sum[m]);
      for (int64_t i = d; i < head_dim; ++i) score += query_MS[m * stride + i] * value_of(key_D[i]);
      scores_M64[m * kBlockTokens + slot] = score;
    }
  }
}

template <int M, typename T>
SLIME_AVX2 void add_value_pages(const float* weight_M64, const T* const* value_pages,
                                int64_t num_slots, int64_t stride, float* out_MS) {
  constexpr int kWide = M <= 3 ? 4 : 2;  // vectors of a row: M * kWide <= 12 accumulators
  int64_t dim = 0;
  for (; dim + 8 * kWide <= stride; dim += 8 * kWide) {
    add_values<M, kWide>(weight_M64, value_pages, num_slots, stride, dim, out_MS);
  }
  for (; dim < stride; dim += 8)
    add_values<M, 1>(weight_M64, value_pages, num_slots, stride, dim, out_MS);
}

/// Calls the form of a register tile for `num_rows` = 1 .. 6 rows.
#define SLIME_FOR_ROWS(num_rows, function, ...) \
  switch (num_rows) {                           \
    case 1:                                     \
      function<1>(__VA_ARGS__);                 \
      break;                                    \
    case 2:                                     \
      function<2>(__VA_ARGS__);                 \
      break;                                    \
    case 3:                                     \
      function<3>(__VA_ARGS__);                 \
      break;                                    \
    case 4:                                     \
      function<4>(__VA_ARGS__);                 \
      break;                                    \
    case 5:                                     \
      function<5>(__VA_ARGS__);                 \
      break;                                    \
    default:                                    \
      function<6>(__VA_ARGS__);                 \
      break;                                    \
  }

/// Running softmax of the rows of a tile.
struct TileRows {
  const float* query_MS = nullptr;
  float* out_MS = nullptr;      // sum of weighted values so far
  float* scores_M64 = nullptr;  // of the current block, then its weights
  float* largest_M = nullptr;
  float* sum_M = nullptr;
  const int64_t* position_M = nullptr;
  const uint8_t* const* chosen_Q =
      nullptr;        // PagedAttentionCall::chosen_T, from the tile's first row
  int64_t group = 1;  // rows of a query
  int64_t stride = 0;
  int64_t window = 0;
  float cap = 0;
};

/// scores = cap * tanh(scores / cap).
SLIME_AVX2 void cap_scores(float* scores, int64_t num_columns, float cap) {
  const __m256 inverse = _mm256_set1_ps(1 / cap), cap8 = _mm256_set1_ps(cap);
  for (int64_t i = 0; i < num_columns; i += 8) {
    const __m256 share = tanh8(_mm256_mul_ps(load8(scores + i), inverse));
    _mm256_storeu_ps(scores + i, _mm256_mul_ps(share, cap8));
  }
}

/// Turns the scores of row m into weights relative to the largest score so far, and rescales what
/// was summed before.
SLIME_AVX2 void softmax_row(const TileRows& rows, int64_t m, int64_t first_key,
                            int64_t num_columns) {
  float* scores = rows.scores_M64 + m * kBlockTokens;
  const int64_t position = rows.position_M[m];
  const int64_t oldest = rows.window > 0 ? position - rows.window + 1 : 0;
  const int64_t begin = std::clamp<int64_t>(oldest - first_key, 0, num_columns);
  const int64_t end = std::clamp<int64_t>(position + 1 - first_key, 0, num_columns);
  if (begin >= end) {
    std::fill_n(scores, num_columns, 0.0F);
    return;
  }
  if (rows.cap > 0) cap_scores(scores, num_columns, rows.cap);
  std::fill(scores, scores + begin, -std::numeric_limits<float>::infinity());
  std::fill(scores + end, scores + num_columns, -std::numeric_limits<float>::infinity());
  if (rows.chosen_Q != nullptr && rows.chosen_Q[m / rows.group] != nullptr) {
    const uint8_t* chosen = rows.chosen_Q[m / rows.group] + first_key;
    for (int64_t i = begin; i < end; ++i)
      if (chosen[i] == 0) scores[i] = -std::numeric_limits<float>::infinity();
  }
  __m256 largest8 = load8(scores);
  for (int64_t i = 8; i < num_columns; i += 8)
    largest8 = _mm256_max_ps(largest8, load8(scores + i));
  const float largest = std::max(rows.largest_M[m], max8(largest8));
  if (largest == -std::numeric_limits<float>::infinity()) {  // nothing chosen so far
    std::fill_n(scores, num_columns, 0.0F);
    return;
  }
  if (largest > rows.largest_M[m]) {
    const float factor = std::exp(rows.largest_M[m] - largest);
    const __m256 factor8 = _mm256_set1_ps(factor);
    float* out = rows.out_MS + m * rows.stride;
    for (int64_t d = 0; d < rows.stride; d += 8)
      _mm256_storeu_ps(out + d, _mm256_mul_ps(load8(out + d), factor8));
    rows.sum_M[m] *= factor;
    rows.largest_M[m] = largest;
  }
  const __m256 shift = _mm256_set1_ps(largest);
  __m256 sum8s = _mm256_setzero_ps();
  for (int64_t i = 0; i < num_columns; i += 8) {
    const __m256 weight = exp8(_mm256_sub_ps(load8(scores + i), shift));
    _mm256_storeu_ps(scores + i, weight);
    sum8s = _mm256_add_ps(sum8s, weight);
  }
  rows.sum_M[m] += sum8(sum8s);
}

/// Rows [begin, end) of the tile look at keys [first_key, first_key + 64) of one sequence.
template <typename T>
SLIME_AVX2 void attend_block(const PagedAttentionCall& call, int64_t kv_head, const TileRows& rows,
                             int64_t begin, int64_t end, const int32_t* pages, int64_t first_key) {
  int64_t last_position = -1;
  for (int64_t m = begin; m < end; ++m) last_position = std::max(last_position, rows.position_M[m]);
  const int64_t num_slots = std::min(kBlockTokens, last_position + 1 - first_key);
  const int64_t num_pages = (num_slots + kPageTokens - 1) / kPageTokens;
  std::array<const T*, kBlockPages> key_pages{};
  std::array<const T*, kBlockPages> value_pages{};
  for (int64_t i = 0; i < num_pages; ++i) {
    const int64_t head =
        static_cast<int64_t>(pages[first_key / kPageTokens + i]) * call.num_kv_heads + kv_head;
    if (!call.values_are_keys)
      key_pages[i] = static_cast<const T*>(call.keys) + head * call.head_dim * kPageTokens;
    value_pages[i] = static_cast<const T*>(call.values) + head * kPageTokens * rows.stride;
  }
  const float* query = rows.query_MS + begin * rows.stride;
  float* scores = rows.scores_M64 + begin * kBlockTokens;
  const bool wide = cpu::has_avx512();
  if (call.values_are_keys) {
    for (int64_t m = begin; m < end; m += kMaxRows) {
      SLIME_FOR_ROWS(end - m, score_rows, rows.query_MS + m * rows.stride, rows.stride,
                     value_pages.data(), num_slots, call.head_dim,
                     rows.scores_M64 + m * kBlockTokens);
    }
  } else if (wide) {
    score_pages_avx512<T>(end - begin, query, rows.stride, key_pages.data(), num_pages,
                          call.head_dim, scores);
  } else {
    for (int64_t m = begin; m < end; m += kMaxRows) {
      SLIME_FOR_ROWS(end - m, score_pages, rows.query_MS + m * rows.stride, rows.stride,
                     key_pages.data(), num_pages, call.head_dim,
                     rows.scores_M64 + m * kBlockTokens);
    }
  }
  for (int64_t m = begin; m < end; ++m) softmax_row(rows, m, first_key, num_pages * kPageTokens);
  if (wide) {
    return add_value_pages_avx512<T>(end - begin, scores, value_pages.data(), num_slots,
                                     rows.stride, rows.out_MS + begin * rows.stride);
  }
  for (int64_t m = begin; m < end; m += kMaxRows) {
    SLIME_FOR_ROWS(end - m, add_value_pages, rows.scores_M64 + m * kBlockTokens, value_pages.data(),
                   num_slots, rows.stride, rows.out_MS + m * rows.stride);
  }
}

template <typename T>
SLIME_AVX2 void attend_tile(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                            int64_t kv_head) {
  const auto& sequences = call.plan->sequences;
  const int64_t group = call.num_heads / call.num_kv_heads;
  const int64_t stride = value_stride(call.head_dim);
  const int64_t num_queries = static_cast<int64_t>(tile.num_sequences) * tile.num_rows;
  const int64_t num_rows = num_queries * group;
  const int64_t first_row = sequences[tile.first_sequence].first_row + tile.first_row;
  const int64_t total_rows = sequences.back().first_row + sequences.back().num_rows;

  thread_local std::vector<float> scratch;  // of this thread; grows to the largest tile
  thread_local std::vector<int64_t> positions;
  scratch.resize(num_rows * (stride + kBlockTokens + 2));
  positions.resize(num_rows);
  TileRows rows;
  rows.query_MS = call.query_scratch + (kv_head * total_rows + first_row) * group * stride;
  rows.out_MS = scratch.data();
  rows.scores_M64 = rows.out_MS + num_rows * stride;
  rows.largest_M = rows.scores_M64 + num_rows * kBlockTokens;
  rows.sum_M = rows.largest_M + num_rows;
  rows.position_M = positions.data();
  rows.stride = stride;
  rows.window = call.window;
  rows.cap = call.cap;
  rows.chosen_Q = call.chosen_T == nullptr ? nullptr : call.chosen_T + first_row;
  rows.group = group;
  std::fill_n(rows.out_MS, num_rows * stride, 0.0F);
  std::fill_n(rows.largest_M, num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(rows.sum_M, num_rows, 0.0F);
  if (call.sinks != nullptr) {
    // A sink is a score that was seen first, and has no value.
    for (int64_t i = 0; i < num_rows; ++i) {
      rows.largest_M[i] = call.sinks[kv_head * group + i % group];
      rows.sum_M[i] = 1;
    }
  }
  int64_t oldest_position = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t query = i / group;
    const PagedSequence& sequence =
        sequences[tile.first_sequence + (tile.num_sequences > 1 ? query : 0)];
    const int64_t row = tile.num_sequences > 1 ? 0 : tile.first_row + query;
    positions[i] = sequence.num_keys - sequence.num_rows + row;
    oldest_position = std::min(oldest_position, positions[i]);
  }
  const auto first_block_of = [&](int64_t position) {
    return call.window > 0 ? std::max<int64_t>(0, position - call.window + 1) / kBlockTokens : 0;
  };

  const int64_t num_shared = tile.num_sequences > 1 ? tile.num_shared_blocks : 0;
  for (int64_t block = first_block_of(oldest_position); block < num_shared; ++block) {
    attend_block<T>(call, kv_head, rows, 0, num_rows, sequences[tile.first_sequence].pages,
                    block * kBlockTokens);
  }
  for (int64_t s = 0; s < tile.num_sequences; ++s) {
    const int64_t begin = tile.num_sequences > 1 ? s * group : 0;
    const int64_t end = tile.num_sequences > 1 ? begin + group : num_rows;
    // Pages before its own first block may be gone (engine/page_window.h).
    for (int64_t key = std::max(first_block_of(positions[begin]), num_shared) * kBlockTokens;
         key <= positions[end - 1]; key += kBlockTokens) {
      attend_block<T>(call, kv_head, rows, begin, end, sequences[tile.first_sequence + s].pages,
                      key);
    }
  }

  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t at =
        ((first_row + i / group) * call.num_heads + kv_head * group + i % group) * call.head_dim;
    if (call.logsumexp_TN != nullptr)
      call.logsumexp_TN[at / call.head_dim] = rows.largest_M[i] + std::log(rows.sum_M[i]);
    const float factor = 1.0F / rows.sum_M[i];
    const float* out = rows.out_MS + i * stride;
    if (call.activations == FloatKind::kFloat32) {
      float* to = static_cast<float*>(call.out_TE) + at;
      for (int64_t d = 0; d < call.head_dim; ++d) to[d] = out[d] * factor;
    } else {
      uint16_t* to = static_cast<uint16_t*>(call.out_TE) + at;
      for (int64_t d = 0; d < call.head_dim; ++d) assign(to[d], out[d] * factor);
    }
  }
}

/// Numbers of a precision as the row kernels (rows_avx2.h) know it.
template <typename A>
struct RowNumbers {
  using Type = at::BFloat16;
};
template <>
struct RowNumbers<float> {
  using Type = float;
};

/// One head of a row, normed and rotated as training does it: `x` is rounded to the activations'
/// precision. Where only a part of the head turns (latent attention), the rest stays.
template <typename A>
SLIME_AVX2 void load_head(const PagedAttentionCall& call, const A* from, const float* norm,
                          int64_t angle, A* x) {
  const float* cos = call.cos_PR + angle * call.rotary_half;
  const float* sin = call.sin_PR + angle * call.rotary_half;
  std::copy_n(from, call.head_dim, x);
  cpu::avx2::norm_rotate_head(reinterpret_cast<typename RowNumbers<A>::Type*>(x), norm, cos, sin,
                              2 * call.rotary_half, call.norm_eps);
}

template <typename A, typename T>
SLIME_AVX2 void prepare_tile(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                             int64_t kv_head) {
  const auto& sequences = call.plan->sequences;
  const int64_t head_dim = call.head_dim;
  const int64_t stride = value_stride(head_dim);
  const int64_t group = call.num_heads / call.num_kv_heads;
  const int64_t total_rows = sequences.back().first_row + sequences.back().num_rows;
  thread_local std::vector<A> head_of_row;
  head_of_row.resize(head_dim);
  A* x = head_of_row.data();
  for (int64_t s = 0; s < tile.num_sequences; ++s) {
    const PagedSequence& sequence = sequences[tile.first_sequence + s];
    for (int64_t i = 0; i < tile.num_rows; ++i) {
      const int64_t row = sequence.first_row + tile.first_row + i;
      const int64_t position = sequence.num_keys - sequence.num_rows + tile.first_row + i;
      const int64_t angle = call.rotary_row_T[row];
      const A* heads = static_cast<const A*>(call.qkv_TE) + row * call.row_size();
      for (int64_t g = 0; g < group; ++g) {
        float* query = call.query_scratch + ((kv_head * total_rows + row) * group + g) * stride;
        load_head(call, heads + (kv_head * group + g) * head_dim, call.q_norm, angle, x);
#pragma omp simd
        for (int64_t d = 0; d < head_dim; ++d) query[d] = value_of(x[d]) * call.scale;
      }
      load_head(call, heads + (call.num_heads + kv_head) * head_dim, call.k_norm, angle, x);
      const int64_t head =
          static_cast<int64_t>(sequence.pages[position / kPageTokens]) * call.num_kv_heads +
          kv_head;
      const int64_t slot = position % kPageTokens;
      T* values = static_cast<T*>(call.values) + (head * kPageTokens + slot) * stride;
      if (call.values_are_keys) {
        for (int64_t d = 0; d < head_dim; ++d) assign(values[d], value_of(x[d]));
        continue;
      }
      T* keys = static_cast<T*>(call.keys) + head * head_dim * kPageTokens + slot;
      for (int64_t d = 0; d < head_dim; ++d) assign(keys[d * kPageTokens], value_of(x[d]));
      const A* value = heads + (call.num_heads + call.num_kv_heads + kv_head) * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) assign(values[d], value_of(value[d]));
    }
  }
}

}  // namespace

void paged_prepare_avx2(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                        int64_t kv_head) {
  const bool wide_in = call.activations == FloatKind::kFloat32;
  const bool wide_cache = call.storage == FloatKind::kFloat32;
  if (wide_in && wide_cache) return prepare_tile<float, float>(call, tile, kv_head);
  if (wide_in) return prepare_tile<float, uint16_t>(call, tile, kv_head);
  if (wide_cache) return prepare_tile<uint16_t, float>(call, tile, kv_head);
  prepare_tile<uint16_t, uint16_t>(call, tile, kv_head);
}

void paged_attend_avx2(const PagedAttentionCall& call, const PagedPlan::Tile& tile,
                       int64_t kv_head) {
  if (call.storage == FloatKind::kFloat32) {
    attend_tile<float>(call, tile, kv_head);
  } else {
    attend_tile<uint16_t>(call, tile, kv_head);
  }
}

}  // namespace slime::kernels
