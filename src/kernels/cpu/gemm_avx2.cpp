#include "kernels/cpu/gemm_avx2.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/error.h"

#include "kernels/cpu/target_avx2_begin.h"

namespace slime::kernels::cpu::avx2 {
namespace {

// ---- one tile
// -----------------------------------------------------------------------------------------------------

__m256i column_mask(int64_t columns) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(columns)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// C[kRows, 16] (+)= A[kRows, k] B[k, 16]. b: packed, 64-byte aligned. A(r, p) = a[r * lda + p],
/// or, packed, a[p * kRows + r]. Twelve accumulators, two vectors of B and one broadcast fill the
/// sixteen registers.
template <int kRows, bool kPacked>
void tile(int64_t k, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
          int64_t columns, bool accumulate) {
  __m256 sum[kRows][2];
  const bool whole = columns == kPanelColumns;
  const __m256i mask[2] = {column_mask(columns), column_mask(columns - 8)};
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      if (!accumulate) {
        sum[r][h] = _mm256_setzero_ps();
      } else if (whole) {
        sum[r][h] = _mm256_loadu_ps(c + r * ldc + 8 * h);
      } else {
        sum[r][h] = _mm256_maskload_ps(c + r * ldc + 8 * h, mask[h]);
      }
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    const __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
    b += kPanelColumns;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(kPacked ? a + r : a + r * lda);
      sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
    }
    a += kPacked ? kRows : 1;
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      if (whole) {
        _mm256_storeu_ps(c + r * ldc + 8 * h, sum[r][h]);
      } else {
        _mm256_maskstore_ps(c + r * ldc + 8 * h, mask[h], sum[r][h]);
      }
    }
  }
}

using TileFn = void (*)(int64_t k, const float* a, int64_t lda, const float* b, float* c,
                        int64_t ldc, int64_t columns, bool accumulate);
constexpr TileFn kDirectTiles[] = {nullptr,        tile<1, false>, tile<2, false>, tile<3, false>,
                                   tile<4, false>, tile<5, false>, tile<6, false>};
constexpr TileFn kPackedTiles[] = {nullptr,       tile<1, true>, tile<2, true>, tile<3, true>,
                                   tile<4, true>, tile<5, true>, tile<6, true>};

// ---- packing B: [k, 16] floats, columns beyond the edge are zero
// -----------------------------------------------------

/// Eight steps of k for sixteen columns that lie along k, in a 16-bit format: a transposition in
/// registers. Lanes are paired so that widening puts the columns in order. row(j) points at column
/// j's eight numbers.
struct Transposed16 {
  __m256i step[8];  // step[p]: columns 0-3, 8-11 | 4-7, 12-15 at k = p
};
template <typename Row>
inline Transposed16 transpose16(const Row& row) {
  const auto pair = [&](int low, int high) __attribute__((always_inline)) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row(low)))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row(high))), 1);
  };
  const __m256i v0 = pair(0, 4), v1 = pair(1, 5), v2 = pair(2, 6), v3 = pair(3, 7);
  const __m256i v4 = pair(8, 12), v5 = pair(9, 13), v6 = pair(10, 14), v7 = pair(11, 15);
  const __m256i t0 = _mm256_unpacklo_epi16(v0, v1), t1 = _mm256_unpackhi_epi16(v0, v1);
  const __m256i t2 = _mm256_unpacklo_epi16(v2, v3), t3 = _mm256_unpackhi_epi16(v2, v3);
  const __m256i t4 = _mm256_unpacklo_epi16(v4, v5), t5 = _mm256_unpackhi_epi16(v4, v5);
  const __m256i t6 = _mm256_unpacklo_epi16(v6, v7), t7 = _mm256_unpackhi_epi16(v6, v7);
  const __m256i u0 = _mm256_unpacklo_epi32(t0, t2), u1 = _mm256_unpackhi_epi32(t0, t2);
  const __m256i u2 = _mm256_unpacklo_epi32(t4, t6), u3 = _mm256_unpackhi_epi32(t4, t6);
  const __m256i u4 = _mm256_unpacklo_epi32(t1, t3), u5 = _mm256_unpackhi_epi32(t1, t3);
  const __m256i u6 = _mm256_unpacklo_epi32(t5, t7), u7 = _mm256_unpackhi_epi32(t5, t7);
  return {{_mm256_unpacklo_epi64(u0, u2), _mm256_unpackhi_epi64(u0, u2),
           _mm256_unpacklo_epi64(u1, u3), _mm256_unpackhi_epi64(u1, u3),
           _mm256_unpacklo_epi64(u4, u6), _mm256_unpackhi_epi64(u4, u6),
           _mm256_unpacklo_epi64(u5, u7), _mm256_unpackhi_epi64(u5, u7)}};
}

inline void store_bfloat16(float* out, __m256i step) {
  const __m256i zero = _mm256_setzero_si256();
  _mm256_store_ps(out, _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, step)));
  _mm256_store_ps(out + 8, _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, step)));
}

inline void store_half(float* out, __m256i step) {
  const __m256i ordered = _mm256_permute4x64_epi64(step, 0xD8);
  _mm256_store_ps(out, _mm256_cvtph_ps(_mm256_castsi256_si128(ordered)));
  _mm256_store_ps(out + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(ordered, 1)));
}

/// Eight rows of eight floats, transposed; row p goes to out + 16 p.
template <typename Row>
inline void transpose_floats(const Row& row, float* out) {
  const __m256 r0 = _mm256_loadu_ps(row(0)), r1 = _mm256_loadu_ps(row(1)),
               r2 = _mm256_loadu_ps(row(2)), r3 = _mm256_loadu_ps(row(3)),
               r4 = _mm256_loadu_ps(row(4)), r5 = _mm256_loadu_ps(row(5)),
               r6 = _mm256_loadu_ps(row(6)), r7 = _mm256_loadu_ps(row(7));
  const __m256 t0 = _mm256_unpacklo_ps(r0, r1), t1 = _mm256_unpackhi_ps(r0, r1);
  const __m256 t2 = _mm256_unpacklo_ps(r2, r3), t3 = _mm256_unpackhi_ps(r2, r3);
  const __m256 t4 = _mm256_unpacklo_ps(r4, r5), t5 = _mm256_unpackhi_ps(r4, r5);
  const __m256 t6 = _mm256_unpacklo_ps(r6, r7), t7 = _mm256_unpackhi_ps(r6, r7);
  const __m256 u0 = _mm256_shuffle_ps(t0, t2, 0x44), u1 = _mm256_shuffle_ps(t0, t2, 0xEE);
  const __m256 u2 = _mm256_shuffle_ps(t1, t3, 0x44), u3 = _mm256_shuffle_ps(t1, t3, 0xEE);
  const __m256 u4 = _mm256_shuffle_ps(t4, t6, 0x44), u5 = _mm256_shuffle_ps(t4, t6, 0xEE);
  const __m256 u6 = _mm256_shuffle_ps(t5, t7, 0x44), u7 = _mm256_shuffle_ps(t5, t7, 0xEE);
  _mm256_store_ps(out, _mm256_permute2f128_ps(u0, u4, 0x20));
  _mm256_store_ps(out + 16, _mm256_permute2f128_ps(u1, u5, 0x20));
  _mm256_store_ps(out + 32, _mm256_permute2f128_ps(u2, u6, 0x20));
  _mm256_store_ps(out + 48, _mm256_permute2f128_ps(u3, u7, 0x20));
  _mm256_store_ps(out + 64, _mm256_permute2f128_ps(u0, u4, 0x31));
  _mm256_store_ps(out + 80, _mm256_permute2f128_ps(u1, u5, 0x31));
  _mm256_store_ps(out + 96, _mm256_permute2f128_ps(u2, u6, 0x31));
  _mm256_store_ps(out + 112, _mm256_permute2f128_ps(u3, u7, 0x31));
}

inline float to_float(float x) { return x; }
inline float to_float(at::BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.x) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
inline float to_float(at::Half x) { return _cvtsh_ss(x.x); }

/// Columns along k (column_stride apart): y = x W^T.
template <typename T>
void pack_along_k(const T* b, int64_t column_stride, int64_t columns, int64_t k, float* out) {
  alignas(32) static const T kZeros[kBlockK] = {};
  const T* column[kPanelColumns];
  for (int64_t j = 0; j < kPanelColumns; ++j)
    column[j] = j < columns ? b + j * column_stride : kZeros;
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) {
    float* to = out + p * kPanelColumns;
    if constexpr (std::is_same_v<T, float>) {
      transpose_floats(
          [&](int j) __attribute__((always_inline)) { return column[j] + p; }, to);
      transpose_floats(
          [&](int j) __attribute__((always_inline)) { return column[8 + j] + p; }, to + 8);
    } else {
      const Transposed16 steps =
          transpose16([&](int j) __attribute__((always_inline)) { return column[j] + p; });
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        if constexpr (std::is_same_v<T, at::BFloat16>) {
          store_bfloat16(to + s * kPanelColumns, steps.step[s]);
        } else {
          store_half(to + s * kPanelColumns, steps.step[s]);
        }
      }
    }
  }
  for (; p < k; ++p) {
    for (int64_t j = 0; j < kPanelColumns; ++j) out[p * kPanelColumns + j] = to_float(column[j][p]);
  }
}

inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
inline __m256 load8(const at::BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m256 load8(const at::Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

/// Columns side by side (k_stride apart along k): dx = dy W, dW = dy^T x.
template <typename T>
void pack_side_by_side(const T* b, int64_t k_stride, int64_t columns, int64_t k, float* out) {
  for (int64_t p = 0; p < k; ++p, b += k_stride, out += kPanelColumns) {
    if (columns == kPanelColumns) {
      _mm256_store_ps(out, load8(b));
      _mm256_store_ps(out + 8, load8(b + 8));
    } else {
      for (int64_t j = 0; j < kPanelColumns; ++j) out[j] = j < columns ? to_float(b[j]) : 0.0F;
    }
  }
}

template <typename T>
void pack_b(const RightFactor& b, int64_t p, int64_t j, int64_t columns, int64_t k, float* out) {
  const T* from = static_cast<const T*>(b.data) + p * b.k_stride + j * b.column_stride;
  if (b.k_stride == 1) {
    pack_along_k(from, b.column_stride, columns, k, out);
  } else {
    pack_side_by_side(from, b.k_stride, columns, k, out);
  }
}

// ---- few rows: straight from memory
// ----------------------------------------------------------------------------------

/// C[kRows, 16] = A W^T for sixteen rows of a bfloat16 W, k a multiple of 8: what packing and
/// tile() compute, in the same order, without the trip through a buffer. Decoding a single stream
/// is bound by memory: the next sixteen rows are prefetched.
template <int kRows>
void stream_panel(int64_t k, const float* a, int64_t lda, const at::BFloat16* w, int64_t ldw,
                  float* c, int64_t ldc) {
  const __m256i zero = _mm256_setzero_si256();
  __m256 sum[kRows][2];
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  const auto* next = reinterpret_cast<const char*>(w + kPanelColumns * ldw);
  for (int64_t p = 0; p < k; p += 8) {
    for (int line = 0; line < 4; ++line, next += 64) _mm_prefetch(next, _MM_HINT_T0);
    const Transposed16 steps =
        transpose16([&](int j) __attribute__((always_inline)) { return w + j * ldw + p; });
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      const __m256 b0 = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, steps.step[s]));
      const __m256 b1 = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, steps.step[s]));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_broadcast_ss(a + r * lda + p + s);
        sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(c + r * ldc, sum[r][0]);
    _mm256_storeu_ps(c + r * ldc + 8, sum[r][1]);
  }
}

using StreamFn = void (*)(int64_t k, const float* a, int64_t lda, const at::BFloat16* w,
                          int64_t ldw, float* c, int64_t ldc);
constexpr StreamFn kStreams[] = {nullptr, stream_panel<1>, stream_panel<2>, stream_panel<3>,
                                 stream_panel<4>};
constexpr int64_t kMaxStreamedRows = 4;

/// Does the whole panels of a product that stream_panel() can do; returns how many columns that
/// were.
int64_t stream(const GemmSize& size, const LeftFactor& a, const RightFactor& b, float* c,
               int64_t ldc) {
  if (size.m > kMaxStreamedRows || b.dtype != at::kBFloat16 || b.k_stride != 1 || a.k_stride != 1 ||
      size.k % 8 != 0) {
    return 0;
  }
  const auto* w = static_cast<const at::BFloat16*>(b.data);
  int64_t j = 0;
  for (; j + kPanelColumns <= size.n; j += kPanelColumns) {
    kStreams[size.m](size.k, a.data, a.row_stride, w + j * b.column_stride, b.column_stride, c + j,
                     ldc);
  }
  return j;
}

// ---- packing A: panels of up to six rows as [k, rows]
// ----------------------------------------------------------------

void pack_a(const LeftFactor& a, int64_t i, int64_t rows, int64_t p, int64_t k, float* out) {
  const float* from = a.data + i * a.row_stride + p * a.k_stride;
  if (rows == kPanelRows) {
    for (int64_t s = 0; s < k; ++s, from += a.k_stride, out += kPanelRows) {
      _mm_storeu_ps(out, _mm_loadu_ps(from));
      out[4] = from[4];
      out[5] = from[5];
    }
    return;
  }
  for (int64_t s = 0; s < k; ++s, from += a.k_stride) {
    for (int64_t r = 0; r < rows; ++r) *out++ = from[r];
  }
}

struct Buffers {
  alignas(64) float b[kBlockK * kPanelColumns];
  std::unique_ptr<float[]> a;
  int64_t a_size = 0;

  float* reserve_a(int64_t size) {
    if (size > a_size) {
      a = std::make_unique<float[]>(static_cast<size_t>(size));
      a_size = size;
    }
    return a.get();
  }
};

}  // namespace

void gemm_block(const GemmSize& size, const LeftFactor& a, const RightFactor& b, float* c,
                int64_t ldc, bool accumulate) {
  check(a.k_stride == 1 || a.row_stride == 1, "one stride of the left factor is 1");
  check(b.k_stride == 1 || b.column_stride == 1, "one stride of the right factor is 1");
  thread_local const auto buffers = std::make_unique<Buffers>();
  const bool packs_a = a.k_stride != 1;
  const TileFn* tiles = packs_a ? kPackedTiles : kDirectTiles;
  float* a_packed = packs_a ? buffers->reserve_a(size.m * kBlockK) : nullptr;
  // Even heights instead of 6, 6, 2: a low panel leaves multiply-add latency uncovered.
  const int64_t panels = (size.m + kPanelRows - 1) / kPanelRows;
  const auto first_row = [&](int64_t panel) { return panel * size.m / panels; };

  const int64_t first_column = accumulate ? 0 : stream(size, a, b, c, ldc);
  if (first_column == size.n) return;
  for (int64_t p = 0; p < size.k || (p == 0 && !accumulate); p += kBlockK) {
    const int64_t k = std::min(kBlockK, size.k - p);
    if (packs_a) {
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t i = first_row(panel);
        pack_a(a, i, first_row(panel + 1) - i, p, k, a_packed + i * k);
      }
    }
    for (int64_t j = first_column; j < size.n; j += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, size.n - j);
      switch (b.dtype) {
        case at::kFloat:
          pack_b<float>(b, p, j, columns, k, buffers->b);
          break;
        case at::kBFloat16:
          pack_b<at::BFloat16>(b, p, j, columns, k, buffers->b);
          break;
        case at::kHalf:
          pack_b<at::Half>(b, p, j, columns, k, buffers->b);
          break;
        default:
          check(false, "the right factor is float32, bfloat16 or float16");
      }
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t i = first_row(panel), rows = first_row(panel + 1) - i;
        const float* from = packs_a ? a_packed + i * k : a.data + i * a.row_stride + p;
        tiles[rows](k, from, a.row_stride, buffers->b, c + i * ldc + j, ldc, columns,
                    accumulate || p > 0);
      }
    }
  }
}

}  // namespace slime::kernels::cpu::avx2

#include "kernels/cpu/target_end.h"
