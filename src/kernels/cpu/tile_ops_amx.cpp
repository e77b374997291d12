#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/tile_ops.h"

#include "kernels/cpu/target_amx_begin.h"

namespace slime::kernels::cpu {
namespace {

using at::BFloat16;

// ---- configuration

/// Intel SDM volume 1, section 18.3.1: palette 1, eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

void begin() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

void end() { _tile_release(); }

// ---- packing

__mmask32 first32(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint64_t{1} << count) - 1);
}
__mmask16 first16(int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF)
                     : static_cast<__mmask16>((uint32_t{1} << count) - 1);
}

/// Sixteen rows of sixteen 32-bit numbers, `row_bytes` apart, transposed to `out` (64 bytes a row).
/// Rows four apart are gathered into one register by loads; two rounds of shuffles inside lanes do
/// the rest.
inline void transpose32(const void* from, int64_t row_bytes, void* out) {
  const auto* rows = static_cast<const char*>(from);
  auto* to = static_cast<char*>(out);
  for (int group = 0; group < 4; ++group) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const char* at = rows + i * row_bytes + 16 * group;
      const auto piece = [&](int quarter) __attribute__((always_inline)) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 4 * quarter * row_bytes));
      };
      __m512i x = _mm512_castsi128_si512(piece(0));
      x = _mm512_inserti32x4(x, piece(1), 1);
      x = _mm512_inserti32x4(x, piece(2), 2);
      v[i] = _mm512_inserti32x4(x, piece(3), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    char* row = to + 256 * group;
    _mm512_storeu_si512(row, _mm512_unpacklo_epi64(a, c));
    _mm512_storeu_si512(row + 64, _mm512_unpackhi_epi64(a, c));
    _mm512_storeu_si512(row + 128, _mm512_unpacklo_epi64(b, d));
    _mm512_storeu_si512(row + 192, _mm512_unpackhi_epi64(b, d));
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

/// Two left tiles of a later step to the first-level cache, and of what comes much later one line
/// in four: the second-level cache's own prefetching brings the lines between. Asking for all of
/// them keeps the buffers busy that the tile loads need.
inline void ask_for(const BFloat16* first, const BFloat16* second, int64_t row_bytes,
                    const char* soon) {
  const auto *a = reinterpret_cast<const char*>(first), *b = reinterpret_cast<const char*>(second);
#pragma GCC unroll 8
  for (int line = 0; line < 32; line += 4) _mm_prefetch(soon + 64 * line, _MM_HINT_T1);
#pragma GCC unroll 16
  for (int64_t row = 0; row < kTileRows; ++row) {
    _mm_prefetch(a + row * row_bytes, _MM_HINT_T0);
    _mm_prefetch(b + row * row_bytes, _MM_HINT_T0);
  }
}

/// Tiles 0 to 3 are sums, 4 and 5 left, 6 and 7 right.
template <bool kBoth, bool kFromMemory>
void multiply_steps(const LeftPanels& left, const BFloat16* right0, const BFloat16* right1,
                    int64_t steps, const char* soon) {
  constexpr int64_t kStepsAhead = 2;
  const BFloat16 *first = left.first, *second = left.second;
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (kFromMemory) {
      ask_for(first + kStepsAhead * left.step, second + kStepsAhead * left.step, left.row_bytes,
              soon);
      soon += 2048;
    }
    _tile_loadd(4, first, left.row_bytes);
    _tile_loadd(6, right0, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kBoth) {
      _tile_loadd(7, right1, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_loadd(5, second, left.row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBoth) {
      _tile_dpbf16ps(3, 5, 7);
      right1 += kTileSize;
    }
    first += left.step;
    second += left.step;
    right0 += kTileSize;
  }
}

template <bool kBoth>
void multiply_tiles(const LeftPanels& left, const BFloat16* right0, const BFloat16* right1,
                    int64_t steps, bool accumulate, float* products, const void* soon) {
  if (accumulate) {
    _tile_loadd(0, products, 64);
    _tile_loadd(2, products + 2 * kTileFloats, 64);
    if constexpr (kBoth) {
      _tile_loadd(1, products + kTileFloats, 64);
      _tile_loadd(3, products + 3 * kTileFloats, 64);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (soon != nullptr) {
    multiply_steps<kBoth, true>(left, right0, right1, steps, static_cast<const char*>(soon));
  } else {
    multiply_steps<kBoth, false>(left, right0, right1, steps, nullptr);
  }
  _tile_stored(0, products, 64);
  _tile_stored(2, products + 2 * kTileFloats, 64);
  if constexpr (kBoth) {
    _tile_stored(1, products + kTileFloats, 64);
    _tile_stored(3, products + 3 * kTileFloats, 64);
  }
}

void multiply(const LeftPanels& left, const BFloat16* right0, const BFloat16* right1, int64_t steps,
              bool accumulate, float* products, const void* soon) {
  (right1 != nullptr ? multiply_tiles<true> : multiply_tiles<false>)(left, right0, right1, steps,
                                                                     accumulate, products, soon);
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
  alignas(64) float turned[kTileRows * kTileRows];
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    int64_t i = quarter / 2 * kTileRows, j = quarter % 2 * kTileRows;
    int64_t high = std::min(kTileRows, rows - i), wide = std::min(kTileRows, columns - j);
    if (high <= 0 || wide <= 0) continue;
    const float* from = products + quarter * kTileFloats;
    if (target.transposed) {
      transpose32(from, 64, turned);
      from = turned;
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

const TileOps& amx_tile_ops() {
  static const TileOps ops{begin, end, pack_left, pack_right, multiply, store};
  return ops;
}

}  // namespace slime::kernels::cpu

#include "kernels/cpu/target_end.h"
