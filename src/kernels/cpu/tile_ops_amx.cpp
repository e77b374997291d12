#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/tile_ops.h"

#include "kernels/cpu/target_amx_begin.h"

namespace slime::kernels::cpu {
namespace {

using at::BFloat16;

#include "kernels/cpu/turn_columns.h"

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

// ---- one row

/// Sixteen blocks of 32 steps that lie one after the other are transposed: a lane is a block, a
/// register holds two steps of each.
inline __m512 even_steps(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
inline __m512 odd_steps(__m512i pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}

/// spread[s * blocks + b]: step s of block b, the blocks of the row repeated.
void spread_vector(const BFloat16* row, int64_t steps, float* spread) {
  const int64_t blocks = spread_blocks(steps);
  alignas(64) BFloat16 some[kTileSize];
  for (int64_t first = 0; first < blocks; first += kTileRows) {
    for (int64_t b = 0; b < kTileRows; ++b)
      std::memcpy(some + b * kTileSteps, row + (first + b) % steps * kTileSteps, 64);
    for (int group = 0; group < 4; ++group) {
      __m512i pairs[4];
      turn_columns(some, 64, group, pairs);
      for (int i = 0; i < 4; ++i) {
        float* to = spread + 2 * (4 * group + i) * blocks + first;
        _mm512_storeu_ps(to, even_steps(pairs[i]));
        _mm512_storeu_ps(to + blocks, odd_steps(pairs[i]));
      }
    }
  }
}

/// A lane is a block: its even and odd steps are summed in order, then blocks row by row in theirs,
/// as the tile instruction does.
void multiply_vectors(const BFloat16* rows, const float* spread, int64_t, int64_t steps,
                      float* block_sums, float* products) {
  constexpr int64_t kBytesAhead = 4096;  // the processor's own prefetching stops where a page ends
  const int64_t blocks = spread_blocks(steps);
  for (int64_t group = 0, first = 0; group < steps; ++group) {
    const BFloat16* from = rows + group * kTileSize;
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; ++quarter) {
      __m512i pairs[4];
      turn_columns(from, 64, quarter, pairs);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(from) + kBytesAhead + 64 * (4 * quarter + i),
                     _MM_HINT_T0);
        const float* x = spread + 2 * (4 * quarter + i) * blocks + first;
        even = _mm512_fmadd_ps(even_steps(pairs[i]), _mm512_loadu_ps(x), even);
        odd = _mm512_fmadd_ps(odd_steps(pairs[i]), _mm512_loadu_ps(x + blocks), odd);
      }
    }
    _mm512_storeu_ps(block_sums + group * kTileRows, _mm512_add_ps(even, odd));
    first = (first + kTileRows) % steps;
  }
  const __m512i row_at =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(static_cast<int>(steps)));
  __m512 sum = _mm512_setzero_ps();
  for (int64_t step = 0; step < steps; ++step)
    sum = _mm512_add_ps(sum, _mm512_i32gather_ps(row_at, block_sums + step, 4));
  _mm512_storeu_ps(products, sum);
}

}  // namespace

const TileOps& amx_tile_ops() {
  static const TileOps ops = [] {
    TileOps all = avx512_tile_ops();  // packing and results are the same
    all.begin = begin;
    all.end = end;
    all.multiply = multiply;
    all.max_vectors = 1;
    all.spread_vector = spread_vector;
    all.multiply_vectors = multiply_vectors;
    return all;
  }();
  return ops;
}

}  // namespace slime::kernels::cpu

#include "kernels/cpu/target_end.h"
