#pragma once

/// tile_ops.h in plain loops, with the sums of the processor's instruction in its order (Intel SDM
/// volume 2, TDPBF16PS): the twin that tests compare AMX with, and what runs the code above the
/// tiles on machines without AMX.

#include <algorithm>

#include "kernels/cpu/tile_ops.h"

namespace slime::kernels::cpu {

inline TileOps portable_tile_ops() {
  using at::BFloat16;
  static const auto element = [](const TileFactor& f, int64_t i, int64_t k) {
    return f.k_strided ? f.data[k * f.stride + i] : f.data[i * f.stride + k];
  };
  TileOps ops;
  ops.begin = ops.end = [] {};
  ops.pack_left = [](const TileFactor& f, int64_t i, int64_t rows, int64_t p, int64_t k,
                     BFloat16* panel) {
    const int64_t padded = (k + kTileSteps - 1) / kTileSteps * kTileSteps;
    for (int64_t s = 0; s < padded; ++s) {
      for (int64_t r = 0; r < kTileRows; ++r) {
        panel[s / kTileSteps * kTileSize + r * kTileSteps + s % kTileSteps] =
            r < rows && s < k ? element(f, i + r, p + s) : BFloat16(0);
      }
    }
  };
  ops.pack_right = [](const TileFactor& f, int64_t i, int64_t rows, int64_t p, int64_t k,
                      BFloat16* panel) {
    const int64_t padded = (k + kTileSteps - 1) / kTileSteps * kTileSteps;
    for (int64_t s = 0; s < padded; ++s) {
      for (int64_t r = 0; r < kTileRows; ++r) {
        panel[s / 2 * 2 * kTileRows + 2 * r + s % 2] =
            r < rows && s < k ? element(f, i + r, p + s) : BFloat16(0);
      }
    }
  };
  ops.multiply = [](const LeftPanels& left, const BFloat16* right0, const BFloat16* right1,
                    int64_t steps, bool accumulate, float* products, const void*) {
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      if (quarter % 2 == 1 && right1 == nullptr) continue;
      const auto* a = reinterpret_cast<const char*>(quarter < 2 ? left.first : left.second);
      const BFloat16* b = quarter % 2 == 0 ? right0 : right1;
      float* c = products + quarter * kTileRows * kTileRows;
      if (!accumulate) std::fill_n(c, kTileRows * kTileRows, 0.0F);
      for (int64_t step = 0; step < steps; ++step, a += 2 * left.step, b += kTileSize) {
        for (int64_t r = 0; r < kTileRows; ++r) {
          const auto* row = reinterpret_cast<const BFloat16*>(a + r * left.row_bytes);
          for (int64_t j = 0; j < kTileRows; ++j) {
            float sum[2] = {};
            for (int64_t s = 0; s < kTileSteps; ++s) {
              // Exact before the addition, as in a fused one: eight bits times eight.
              sum[s % 2] += static_cast<float>(row[s]) *
                            static_cast<float>(b[s / 2 * 2 * kTileRows + 2 * j + s % 2]);
            }
            c[r * kTileRows + j] += sum[0] + sum[1];
          }
        }
      }
    }
  };
  ops.max_vectors = 3;
  ops.spread_vector = [](const BFloat16* row, int64_t steps, float* spread) {
    for (int64_t i = 0; i < steps * kTileSteps; ++i) spread[i] = row[i];
  };
  ops.multiply_vectors = [](const BFloat16* rows, const float* spread, int64_t count, int64_t steps,
                            float*, float* products) {
    for (int64_t v = 0; v < count; ++v, spread += spread_floats(steps), products += kTileRows) {
      const BFloat16* row = rows;
      for (int64_t r = 0; r < kTileRows; ++r) {
        products[r] = 0;
        for (int64_t step = 0; step < steps; ++step, row += kTileSteps) {
          float sum[2] = {};
          for (int64_t s = 0; s < kTileSteps; ++s)
            sum[s % 2] += static_cast<float>(row[s]) * spread[step * kTileSteps + s];
          products[r] += sum[0] + sum[1];
        }
      }
    }
  };
  ops.store = [](const float* products, int64_t rows, int64_t columns, const TileTarget& target) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t quarter = i / kTileRows * 2 + j / kTileRows;
        const float x =
            products[quarter * kTileRows * kTileRows + i % kTileRows * kTileRows + j % kTileRows];
        const int64_t at = target.transposed ? j * target.stride + i : i * target.stride + j;
        if (target.store == TileStore::kBfloat16) {
          static_cast<BFloat16*>(target.data)[at] = x;
        } else {
          float& to = static_cast<float*>(target.data)[at];
          to = target.store == TileStore::kAddToFloat ? to + x : x;
        }
      }
    }
  };
  return ops;
}

}  // namespace slime::kernels::cpu
