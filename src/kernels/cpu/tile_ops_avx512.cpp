#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/tile_ops.h"

#include "kernels/cpu/target_avx512_begin.h"

namespace slime::kernels::cpu {
namespace {

using at::BFloat16;

#include "kernels/cpu/turn_columns.h"

// ---- packing

__mmask32 first32(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint64_t{1} << count) - 1);
}
__mmask16 first16(int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF)
                     : static_cast<__mmask16>((uint32_t{1} << count) - 1);
}

/// Sixteen rows of sixteen 32-bit numbers, `row_bytes` apart, transposed to `out` (64 bytes a row).
inline void transpose32(const void* from, int64_t row_bytes, void* out) {
  auto* to = static_cast<char*>(out);
  for (int group = 0; group < 4; ++group) {
    __m512i columns[4];
    turn_columns(from, row_bytes, group, columns);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) _mm512_storeu_si512(to + 64 * (4 * group + i), columns[i]);
  }
}

/// One tile of rows that lie along k, zero beyond the edges.
inline void copy_tile(const BFloat16* from, int64_t stride, int64_t rows, int64_t k,
                      BFloat16* out) {
  const __mmask32 mask = first32(k);
  for (int64_t r = 0; r < kTileRows; ++r) {
    _mm512_storeu_si512(
        out + r * kTileSteps,
        r < rows ? _mm512_maskz_loadu_epi16(mask, from + r * stride) : _mm512_setzero_si512());
  }
}

/// One tile of rows that lie across k, as a right tile: the steps of a pair side by side.
inline void interleave_tile(const BFloat16* from, int64_t stride, int64_t rows, int64_t k,
                            BFloat16* out) {
  const __mmask16 mask = first16(rows);
  for (int64_t pair = 0; pair < kTileRows; ++pair, from += 2 * stride, out += kTileSteps) {
    const auto step = [&](int64_t which) __attribute__((always_inline)) {
      if (2 * pair + which >= k) return _mm512_setzero_si512();
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + which * stride));
    };
    _mm512_storeu_si512(out, _mm512_or_si512(step(0), _mm512_slli_epi32(step(1), 16)));
  }
}

void pack_left(const TileFactor& factor, int64_t i, int64_t rows, int64_t p, int64_t k,
               BFloat16* panel) {
  alignas(64) BFloat16 pairs[kTileSize];
  for (int64_t step = 0; step < k; step += kTileSteps, panel += kTileSize) {
    if (factor.k_strided) {
      interleave_tile(factor.data + (p + step) * factor.stride + i, factor.stride, rows, k - step,
                      pairs);
      transpose32(pairs, 64, panel);
    } else {
      copy_tile(factor.data + i * factor.stride + p + step, factor.stride, rows, k - step, panel);
    }
  }
}

void pack_right(const TileFactor& factor, int64_t i, int64_t rows, int64_t p, int64_t k,
                BFloat16* panel) {
  alignas(64) BFloat16 whole[kTileSize];
  for (int64_t step = 0; step < k; step += kTileSteps, panel += kTileSize) {
    if (factor.k_strided) {
      interleave_tile(factor.data + (p + step) * factor.stride + i, factor.stride, rows, k - step,
                      panel);
      continue;
    }
    const BFloat16* from = factor.data + i * factor.stride + p + step;
    if (rows >= kTileRows && k - step >= kTileSteps) {
      transpose32(from, factor.stride * 2, panel);
    } else {
      copy_tile(from, factor.stride, rows, k - step, whole);
      transpose32(whole, 64, panel);
    }
  }
}

// ---- products

constexpr int64_t kTileFloats = kTileRows * kTileRows;
constexpr int kHalf = 8;  // left rows that are multiplied with two right tiles at a time

/// The intrinsics' vector types have no portable cast; std::bit_cast would be a call to code without
/// AVX-512.
inline __m512bh as_pairs(__m512i bits) {
  __m512bh pairs;
  std::memcpy(&pairs, &bits, sizeof(pairs));
  return pairs;
}

/// Two steps of a row, for all lanes.
inline __m512bh pair_of(const char* row, int pair) {
  int32_t bits = 0;
  std::memcpy(&bits, row + 4 * pair, sizeof(bits));
  return as_pairs(_mm512_set1_epi32(bits));
}

inline __m512bh load_pairs(const BFloat16* from) { return as_pairs(_mm512_loadu_si512(from)); }

/// kRows left rows times kColumns right tiles, kRows * kColumns sums in registers. An element's
/// sum takes pair after pair, whatever else is summed beside it. `lines` of what comes later are
/// asked for per step, in the order of memory.
template <int kRows, int kColumns, int kLines>
inline void multiply_rows(const char* left, int64_t row_bytes, int64_t step_bytes,
                          const BFloat16* right0, const BFloat16* right1, int64_t steps,
                          bool accumulate, float* products, const char* soon) {
  __m512 sum[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c)
      sum[r][c] = accumulate ? _mm512_loadu_ps(products + c * kTileFloats + r * kTileRows)
                             : _mm512_setzero_ps();
  }
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (kLines > 0) {
#pragma GCC unroll 16
      for (int line = 0; line < kLines; ++line) _mm_prefetch(soon + 64 * line, _MM_HINT_T1);
      soon += 64 * kLines;
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < kTileRows; ++pair) {
      const __m512bh column0 = load_pairs(right0 + pair * kTileSteps);
      const __m512bh column1 = kColumns > 1 ? load_pairs(right1 + pair * kTileSteps) : column0;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512bh x = pair_of(left + r * row_bytes, pair);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, column0);
        if constexpr (kColumns > 1) sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, column1);
      }
    }
    left += step_bytes;
    right0 += kTileSize;
    if constexpr (kColumns > 1) right1 += kTileSize;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c)
      _mm512_storeu_ps(products + c * kTileFloats + r * kTileRows, sum[r][c]);
  }
}

template <bool kFromMemory>
void multiply_panels(const LeftPanels& left, const BFloat16* right0, const BFloat16* right1,
                     int64_t steps, bool accumulate, float* products, const void* soon) {
  const auto* ahead = static_cast<const char*>(soon);
  const int64_t step_bytes = 2 * left.step;
  for (const BFloat16* panel : {left.first, left.second}) {
    const auto* rows = reinterpret_cast<const char*>(panel);
    if (right1 == nullptr) {
      multiply_rows<kTileRows, 1, kFromMemory ? 16 : 0>(
          rows, left.row_bytes, step_bytes, right0, nullptr, steps, accumulate, products, ahead);
      if constexpr (kFromMemory) ahead += steps * 1024;
    } else {
      for (int half = 0; half < 2; ++half) {
        multiply_rows<kHalf, 2, kFromMemory ? 8 : 0>(
            rows + half * kHalf * left.row_bytes, left.row_bytes, step_bytes, right0, right1, steps,
            accumulate, products + half * kHalf * kTileRows, ahead);
        if constexpr (kFromMemory) ahead += steps * 512;
      }
    }
    products += 2 * kTileFloats;
  }
}

void multiply(const LeftPanels& left, const BFloat16* right0, const BFloat16* right1, int64_t steps,
              bool accumulate, float* products, const void* soon) {
  (soon != nullptr ? multiply_panels<true> : multiply_panels<false>)(left, right0, right1, steps,
                                                                     accumulate, products, soon);
}

// ---- a few rows

void spread_vector(const BFloat16* row, int64_t steps, float* spread) {
  std::memcpy(spread, row, static_cast<size_t>(steps * kTileSteps) * sizeof(BFloat16));
}

/// A lane is a row of memory: its pairs are summed in order, as in multiply(). The sixteen rows that
/// follow are asked for in the order of memory.
template <int kVectors>
void multiply_some(const BFloat16* rows, const float* spread, int64_t steps, float* products) {
  const int64_t row_bytes = 2 * kTileSteps * steps;
  const int64_t spread_bytes = spread_floats(steps) * static_cast<int64_t>(sizeof(float));
  const auto* from = reinterpret_cast<const char*>(rows);
  const char* soon = from + kTileRows * row_bytes;
  const auto* x = reinterpret_cast<const char*>(spread);
  __m512 sum[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sum[v] = _mm512_setzero_ps();
  for (int64_t step = 0; step < steps; ++step, from += 64, x += 64, soon += 1024) {
#pragma GCC unroll 16
    for (int line = 0; line < kTileRows; ++line) _mm_prefetch(soon + 64 * line, _MM_HINT_T1);
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
      __m512i pairs[4];
      turn_columns(from, row_bytes, group, pairs);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          sum[v] = _mm512_dpbf16_ps(sum[v], as_pairs(pairs[i]),
                                    pair_of(x + v * spread_bytes, 4 * group + i));
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(products + v * kTileRows, sum[v]);
}

/// Turning a tile costs as much as five rows of products with it; beyond eight rows a tile of sixteen
/// is cheaper.
constexpr int64_t kMaxVectors = 8;

void multiply_vectors(const BFloat16* rows, const float* spread, int64_t count, int64_t steps,
                      float*, float* products) {
  using Fn = void (*)(const BFloat16*, const float*, int64_t, float*);
  constexpr Fn kFns[kMaxVectors] = {multiply_some<1>, multiply_some<2>, multiply_some<3>,
                                    multiply_some<4>, multiply_some<5>, multiply_some<6>,
                                    multiply_some<7>, multiply_some<8>};
  kFns[count - 1](rows, spread, steps, products);
}

// ---- results

template <TileStore kStore>
inline void store_row(void* data, int64_t at, __mmask16 mask, __m512 row) {
  if constexpr (kStore == TileStore::kBfloat16) {
    // The intrinsic's vector type has no portable cast; its bits are what counts.
    const __m256bh narrow = _mm512_cvtneps_pbh(row);
    __m256i bits;
    std::memcpy(&bits, &narrow, sizeof(bits));
    _mm256_mask_storeu_epi16(static_cast<BFloat16*>(data) + at, mask, bits);
  } else {
    float* to = static_cast<float*>(data) + at;
    if constexpr (kStore == TileStore::kAddToFloat)
      row = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), row);
    _mm512_mask_storeu_ps(to, mask, row);
  }
}

template <TileStore kStore>
void store_products(const float* products, int64_t rows, int64_t columns,
                    const TileTarget& target) {
  alignas(64) float transposed[kTileRows * kTileRows];
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    int64_t i = quarter / 2 * kTileRows, j = quarter % 2 * kTileRows;
    int64_t high = std::min(kTileRows, rows - i), wide = std::min(kTileRows, columns - j);
    if (high <= 0 || wide <= 0) continue;
    const float* from = products + quarter * kTileFloats;
    if (target.transposed) {
      transpose32(from, 64, transposed);
      from = transposed;
      std::swap(i, j);
      std::swap(high, wide);
    }
    const __mmask16 mask = first16(wide);
    for (int64_t r = 0; r < high; ++r) {
      store_row<kStore>(target.data, (i + r) * target.stride + j, mask,
                        _mm512_loadu_ps(from + r * kTileRows));
    }
  }
}

void store(const float* products, int64_t rows, int64_t columns, const TileTarget& target) {
  switch (target.store) {
    case TileStore::kBfloat16:
      return store_products<TileStore::kBfloat16>(products, rows, columns, target);
    case TileStore::kFloat:
      return store_products<TileStore::kFloat>(products, rows, columns, target);
    case TileStore::kAddToFloat:
      return store_products<TileStore::kAddToFloat>(products, rows, columns, target);
  }
}

}  // namespace

const TileOps& avx512_tile_ops() {
  static const TileOps ops{.begin = [] {},
                           .end = [] {},
                           .pack_left = pack_left,
                           .pack_right = pack_right,
                           .multiply = multiply,
                           .max_vectors = kMaxVectors,
                           .spread_vector = spread_vector,
                           .multiply_vectors = multiply_vectors,
                           .store = store};
  return ops;
}

}  // namespace slime::kernels::cpu

#include "kernels/cpu/target_end.h"
