#pragma once

/// TMA descriptors (CUtensorMap) of tiles of row-major matrices (compute capability 9.0).

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Columns that are contiguous in shared memory: 128 bytes, the span of the swizzle.
inline constexpr int kSlab = 64;

/// A copy's box is `box_rows` rows by `box_slabs` slabs, stored as [slab, row, kSlab] with the
/// 128-byte swizzle: within 1024 bytes, 16-byte piece p of line l stands at p xor l % 8.
/// Coordinates are (0, row, slab); elements out of bounds become zero. 16-bit numbers, columns a
/// multiple of kSlab, `matrix` 16-byte aligned device memory. Throws std::runtime_error.
CUtensorMap tile_map(Number number, const void* matrix, int64_t rows, int64_t columns, int box_rows,
                     int box_slabs);

/// As tile_map() for a matrix of `groups` times `group_rows` rows. A copy's box is `box_rows` of
/// each group by `box_slabs` slabs, stored as [slab, group, row, kSlab]; coordinates are (0, row,
/// 0, slab).
CUtensorMap group_tile_map(Number number, const void* matrix, int64_t groups, int64_t group_rows,
                           int64_t columns, int box_rows, int box_slabs);

/// As tile_map() for a matrix of `pairs` rows of gates, then as many rows of ups. A copy's box is
/// `box_pairs` of both in one slab, interleaved by four: four gates, their four ups, the next four
/// gates and so on. Both numbers are multiples of four; coordinates are (0, 0, 0, pair / 4, slab).
CUtensorMap pair_tile_map(Number number, const void* matrix, int64_t pairs, int64_t columns,
                          int box_pairs);

/// Tiles of the rows of a bfloat16 matrix, one slab a copy, stored as [row, kSlab]. Columns are a
/// multiple of eight; coordinates are (column, row).
CUtensorMap row_map(const void* matrix, int64_t rows, int64_t columns, int box_rows);

/// As row_map() for a matrix of experts, each `pairs` rows of gates, then as many of ups. A copy's
/// box is `box_pairs` of both of one expert, interleaved by eight: eight gates, their eight ups, the
/// next eight gates and so on. Both numbers are multiples of eight; coordinates are (column, 0, 2
/// expert, pair / 8).
CUtensorMap expert_pair_map(const void* matrix, int64_t experts, int64_t pairs, int64_t columns,
                            int box_pairs);

}  // namespace slime::kernels::cuda
