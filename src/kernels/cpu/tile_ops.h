#pragma once

/// The few operations on 1 KiB tiles that products of bfloat16 matrices are made of, as a table of
/// functions: AMX's (tile_ops_amx.cpp) on processors that have it, those of AVX-512's products of
/// pairs (tile_ops_avx512.cpp) on others, plain loops in the tests, so that everything above them is
/// tested on any machine.
///
/// A left tile holds 16 rows of 32 steps along k:      left[r * 32 + p]
/// A right tile holds 32 steps of 16 rows, in pairs:   right[(p / 2) * 32 + 2 * r + p % 2]
/// A product of them is 16 x 16 floats, row by row. Both kinds are 512 bfloat16, zero beyond the
/// edges of the matrix; a panel is the tiles of 16 rows, one after the other along k.

#include <ATen/ATen.h>

#include <cstdint>

namespace slime::kernels::cpu {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileSteps = 32;  // along k
constexpr int64_t kTileSize = kTileRows * kTileSteps;

/// Element (i, k) is data[i * stride + k], or with `k_strided` data[k * stride + i].
struct TileFactor {
  const at::BFloat16* data = nullptr;
  int64_t stride = 0;
  bool k_strided = false;
};

/// Two panels of sixteen rows as the left side of a product: packed, or rows in memory as they are.
struct LeftPanels {
  const at::BFloat16* first = nullptr;
  const at::BFloat16* second = nullptr;
  int64_t row_bytes = 2 * kTileSteps;  // from row to row of a tile
  int64_t step = kTileSize;            // elements from tile to tile
};

enum class TileStore { kBfloat16, kFloat, kAddToFloat };

/// Where a product goes. Element (i, j) is data[i * stride + j], or with `transposed`
/// data[j * stride + i].
struct TileTarget {
  void* data = nullptr;
  int64_t stride = 0;
  TileStore store = TileStore::kFloat;
  bool transposed = false;
};

struct TileOps {
  /// Around each use on a thread.
  void (*begin)();
  void (*end)();

  /// Packs rows [i, i + rows) (at most 16), steps [p, p + k) as a panel of left or right tiles.
  void (*pack_left)(const TileFactor& factor, int64_t i, int64_t rows, int64_t p, int64_t k,
                    at::BFloat16* panel);
  void (*pack_right)(const TileFactor& factor, int64_t i, int64_t rows, int64_t p, int64_t k,
                     at::BFloat16* panel);

  /// products[0 .. 3] (+)= first x right0, first x right1, second x right0, second x right1, over
  /// `steps` tiles each; with right1 null only those of right0. The order of an element's sum is the
  /// table's and nothing else's, so an element has the same bits whichever factor is on the left.
  /// AMX: per tile the even and the odd steps are summed apart, from zero, in order; their sum is
  /// added. AVX-512: pairs of steps are added in order. `soon`: the left side comes from memory; here are
  /// the rows that follow it, 2 KiB per step, to be prefetched (null: it is in a cache).
  void (*multiply)(const LeftPanels& left, const at::BFloat16* right0, const at::BFloat16* right1,
                   int64_t steps, bool accumulate, float* products, const void* soon);

  /// How many rows multiply_vectors() takes at most.
  int64_t max_vectors;

  /// Prepares one row of 32 * steps numbers for multiply_vectors(); `spread` holds
  /// spread_floats(steps).
  void (*spread_vector)(const at::BFloat16* row, int64_t steps, float* spread);

  /// products[16 v + r] = row v of `count` spread before, one after the other, times row r of sixteen
  /// that lie one after the other in memory, from `rows` on. Bits as of multiply(). `block_sums`
  /// holds 16 * steps floats meanwhile.
  void (*multiply_vectors)(const at::BFloat16* rows, const float* spread, int64_t count,
                           int64_t steps, float* block_sums, float* products);

  /// Writes rows x columns (at most 32 each) of the four products, the target's origin at the
  /// first.
  void (*store)(const float* products, int64_t rows, int64_t columns, const TileTarget& target);
};

/// Sixteen blocks of 32 steps are worked on at once, from any block on: fifteen more than there
/// are.
constexpr int64_t spread_blocks(int64_t steps) {
  return (steps + 15 + kTileRows - 1) / kTileRows * kTileRows;
}
constexpr int64_t spread_floats(int64_t steps) { return kTileSteps * spread_blocks(steps); }

/// Call only after has_amx().
const TileOps& amx_tile_ops();
/// Call only after has_tiles().
const TileOps& avx512_tile_ops();
/// The fastest of this processor. Call only after has_tiles().
const TileOps& tile_ops();

}  // namespace slime::kernels::cpu
