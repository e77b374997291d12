#pragma once

/// The work items of the decode attention kernel, as the host plans them
/// (kernels/gpu/decode_units.h) and the device reads them. Plain integers: both compilers see this
/// file.

#include <cstdint>

#include "kernels/page.h"

namespace slime::kernels {

/// A run of pages that one thread block of the kernel reads, for each key-value head, on behalf of
/// one sequence or of several that share those pages.
struct alignas(16) DecodeSegment {
  int32_t first_member = 0;  // in the list of members
  int32_t num_members = 1;
  int32_t pages_offset = 0;  // of its first page in PagedBatch::pages
  int32_t num_pages = 0;
  int32_t last_tokens = kPageTokens;  // tokens in its last page
  int32_t first_key = 0;              // position of its first key in each of its sequences
  // So many of its last pages get keys of this very step. Where each row sees its own new key alone that is
  // one page of one member, which no other segment has: its thread block may write the key, and nobody else
  // reads it. Where rows see new keys of others (PagedBatch::sees_new_keys) all are written before.
  int32_t num_fresh = 0;
  int32_t unused = 0;
};

/// A sequence that a segment is read for.
struct alignas(16) DecodeMember {
  int32_t sequence = 0;
  int32_t row = 0;      // its query row
  int32_t record = -1;  // where its partial result goes; -1: the segment is all of the sequence
  int32_t unused = 0;
};

/// The kernel's shape: query heads of a segment's members lie eight to a row set, a warp has one
/// row set, and warps of the same row set take pages round-robin.
inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeSetRows = 8;
inline constexpr int kMostDecodeRows = kDecodeWarps * kDecodeSetRows;  // members x heads

/// Row sets that the kernel works with: a power of two, so that they share the warps evenly.
constexpr int decode_row_sets(int rows) {
  return rows <= kDecodeSetRows ? 1 : rows <= 2 * kDecodeSetRows ? 2 : 4;
}

/// Occupancy: thread blocks of the kernel per multiprocessor (limited by registers).
constexpr int decode_blocks_per_processor(int head_dim, int bytes_per_number) {
  const int blocks = head_dim > 64 ? 3 : 4;
  return bytes_per_number == 1 ? blocks + 1 : blocks;
}

}  // namespace slime::kernels
