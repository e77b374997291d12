#include "kernels/cpu/paged_attention_avx512.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/paged_attention.h"

#include "kernels/cpu/target_avx512_begin.h"

namespace slime::kernels {
namespace {

constexpr int kMaxRows = 6;

inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }
inline __m512 load16(const uint16_t* from) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}
inline __m512 load8_wide(const float* from) {
  return _mm512_castps256_ps512(_mm256_loadu_ps(from));
}
inline __m512 load8_wide(const uint16_t* from) {
  const __m256i wide =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm512_castps256_ps512(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
}

/// All pages of the block at once: M x P independent sums hide the multiply-add's latency.
template <int M, int P, typename T>
inline void score(const float* query, int64_t stride, const T* const* key_pages, int64_t head_dim,
                  float* scores) {
  __m512 sum[M][P];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[m][p] = _mm512_setzero_ps();
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    __m512 key[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) key[p] = load16(key_pages[p] + d * kPageTokens);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const __m512 x = _mm512_set1_ps(query[m * stride + d]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[m][p] = _mm512_fmadd_ps(x, key[p], sum[m][p]);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      _mm512_storeu_ps(scores + m * kBlockTokens + p * kPageTokens, sum[m][p]);
  }
}

template <int M, typename T>
void score_rows(const float* query, int64_t stride, const T* const* key_pages, int64_t num_pages,
                int64_t head_dim, float* scores) {
  switch (num_pages) {
    case 1:
      return score<M, 1>(query, stride, key_pages, head_dim, scores);
    case 2:
      return score<M, 2>(query, stride, key_pages, head_dim, scores);
    case 3:
      return score<M, 3>(query, stride, key_pages, head_dim, scores);
    default:
      return score<M, 4>(query, stride, key_pages, head_dim, scores);
  }
}

/// W vectors of sixteen, or with kHalf one of eight.
template <int M, int W, bool kHalf, typename T>
inline void add_values(const float* weights, const T* const* value_pages, int64_t num_slots,
                       int64_t stride, int64_t dim, float* out) {
  const __mmask16 mask = kHalf ? 0x00FF : 0xFFFF;
  __m512 sum[M][W];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w)
      sum[m][w] = _mm512_maskz_loadu_ps(mask, out + m * stride + dim + 16 * w);
  }
  for (int64_t first = 0; first < num_slots; first += kPageTokens) {
    const T* values = value_pages[first / kPageTokens] + dim;
    const int64_t slots = std::min(kPageTokens, num_slots - first);
    for (int64_t slot = 0; slot < slots; ++slot, values += stride) {
      __m512 value[W];
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) {
        if constexpr (kHalf) {
          value[w] = load8_wide(values);
        } else {
          value[w] = load16(values + 16 * w);
        }
      }
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const __m512 weight = _mm512_set1_ps(weights[m * kBlockTokens + first + slot]);
#pragma GCC unroll 4
        for (int w = 0; w < W; ++w) sum[m][w] = _mm512_fmadd_ps(weight, value[w], sum[m][w]);
      }
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w)
      _mm512_mask_storeu_ps(out + m * stride + dim + 16 * w, mask, sum[m][w]);
  }
}

template <int M, typename T>
void add_rows(const float* weights, const T* const* value_pages, int64_t num_slots, int64_t stride,
              float* out) {
  int64_t dim = 0;
  for (; dim + 64 <= stride; dim += 64)
    add_values<M, 4, false>(weights, value_pages, num_slots, stride, dim, out);
  for (; dim + 16 <= stride; dim += 16)
    add_values<M, 1, false>(weights, value_pages, num_slots, stride, dim, out);
  if (dim < stride) add_values<M, 1, true>(weights, value_pages, num_slots, stride, dim, out);
}

template <typename T>
using ScoreFn = void (*)(const float*, int64_t, const T* const*, int64_t, int64_t, float*);
template <typename T>
constexpr ScoreFn<T> kScores[] = {nullptr,          score_rows<1, T>, score_rows<2, T>,
                                  score_rows<3, T>, score_rows<4, T>, score_rows<5, T>,
                                  score_rows<6, T>};
template <typename T>
using AddFn = void (*)(const float*, const T* const*, int64_t, int64_t, float*);
template <typename T>
constexpr AddFn<T> kAdds[] = {nullptr,        add_rows<1, T>, add_rows<2, T>, add_rows<3, T>,
                              add_rows<4, T>, add_rows<5, T>, add_rows<6, T>};

}  // namespace

template <typename T>
void score_pages_avx512(int64_t rows, const float* query, int64_t stride, const T* const* key_pages,
                        int64_t num_pages, int64_t head_dim, float* scores) {
  for (int64_t m = 0; m < rows; m += kMaxRows) {
    kScores<T>[std::min<int64_t>(kMaxRows, rows - m)](
        query + m * stride, stride, key_pages, num_pages, head_dim, scores + m * kBlockTokens);
  }
}

template <typename T>
void add_value_pages_avx512(int64_t rows, const float* weights, const T* const* value_pages,
                            int64_t num_slots, int64_t stride, float* out) {
  for (int64_t m = 0; m < rows; m += kMaxRows) {
    kAdds<T>[std::min<int64_t>(kMaxRows, rows - m)](weights + m * kBlockTokens, value_pages,
                                                    num_slots, stride, out + m * stride);
  }
}

template void score_pages_avx512<float>(int64_t, const float*, int64_t, const float* const*,
                                        int64_t, int64_t, float*);
template void score_pages_avx512<uint16_t>(int64_t, const float*, int64_t, const uint16_t* const*,
                                           int64_t, int64_t, float*);
template void add_value_pages_avx512<float>(int64_t, const float*, const float* const*, int64_t,
                                            int64_t, float*);
template void add_value_pages_avx512<uint16_t>(int64_t, const float*, const uint16_t* const*,
                                               int64_t, int64_t, float*);

}  // namespace slime::kernels

#include "kernels/cpu/target_end.h"
