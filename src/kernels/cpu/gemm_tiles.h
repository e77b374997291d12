#pragma once

/// Products of bfloat16 matrices with float32 sums, out of the tiles of tile_ops.h:
///
///   C(i, j) = sum over k of A(i, k) B(j, k)          i < m, j < n
///
/// y = x W^T is A = x, B = W; dx = dy W is A = dy, B = W with strided k; dW += dy^T x is both with
/// strided k.
///
/// Few rows of A against a long B (decoding): B is read once, straight from memory, as left tiles;
/// only A is packed. Very few rows are multiplied as vectors. Everything else is blocked for the second-level cache and both sides
/// are packed. Which factor is on the left, the blocks and the threads follow from the sizes and
/// change no bit of the result (tile_ops.h): a row's result does not depend on its neighbours.

#include <span>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile_ops.h"

namespace slime::kernels::cpu {

struct TileProduct {
  GemmSize size;
  TileFactor a, b;
  TileTarget c;
};

/// Runs on the kernel threads. With k = 0, C becomes zero or, adding, stays.
void gemm_tiles(const TileOps& ops, const GemmSize& size, const TileFactor& a, const TileFactor& b,
                const TileTarget& c);

/// Several products, as those of experts: those of few rows share one hand-out of work to the
/// threads.
void gemm_tiles(const TileOps& ops, std::span<const TileProduct> products);

}  // namespace slime::kernels::cpu
