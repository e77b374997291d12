#pragma once

/// How the copy engine finds tiles of a matrix (compute capability 9.0).

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

inline constexpr int kSlab = 64;  // columns that lie side by side in shared memory: 128 bytes

/// A copy brings `box_rows` rows by `box_slabs` slabs as [slab, row, kSlab]; within 1024 bytes, the
/// eight 16-byte pieces of line l stand in the order of their number xor l % 8. Coordinates are (0,
/// row, slab); what is outside of the matrix becomes zero. 16-bit numbers, columns a multiple of
/// kSlab. Throws std::runtime_error.
CUtensorMap tile_map(Number number, const void* matrix, int64_t rows, int64_t columns, int box_rows,
                     int box_slabs);

/// Rows of the matrix are `groups` of `group_rows`, one behind the other. A copy brings `box_rows`
/// of each by `box_slabs` slabs as [slab, group, row, kSlab]; coordinates are (0, row, 0, slab).
CUtensorMap group_tile_map(Number number, const void* matrix, int64_t groups, int64_t group_rows,
                           int64_t columns, int box_rows, int box_slabs);

/// Rows of the matrix are `pairs` gates, then as many ups. A copy brings `box_pairs` of both, in
/// one slab: four gates, their four ups, the next four gates and so on. Both numbers are multiples
/// of four; coordinates are (0, 0, 0, pair / 4, slab).
CUtensorMap pair_tile_map(Number number, const void* matrix, int64_t pairs, int64_t columns,
                          int box_pairs);

}  // namespace slime::kernels::cuda
