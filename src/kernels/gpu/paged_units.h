#pragma once

/// Plans of tiled attention, made on the host: the units of work that the kernel gets.
///
/// Query rows of a sequence times the query heads that share a key-value head are packed into tiles
/// of 16, 64 or 128. Sequences with one new token and with many (prompts) go to separate launches,
/// because they want different tiles; where the decode kernel has the shape, those with one token
/// go there instead (kernels/gpu/decode_units.h).

#include <cstdint>
#include <span>
#include <vector>

namespace slime::kernels {

struct PagedSpan {
  int64_t num_rows = 0;    // new tokens
  int64_t num_keys = 0;    // all tokens of the sequence, the new ones included
  bool is_packed = false;  // other kernels attend for it (kernels/gpu/packed_prompts.h)
};

struct UnitPlan {
  int64_t tile = 16;
  int64_t num_units = 0;  // with those that are switched off
  std::vector<int32_t> sequence_U, tile_U, chunk_U;
  std::vector<uint8_t> is_on_U;
  // Split keys: a unit sees one chunk of its sequence's, and each row leaves a partial result for
  // every chunk, in the order of rows. Empty lists: units see all keys.
  int32_t chunk_tokens = 1 << 30;
  int64_t num_partials = 0;
  std::vector<int32_t> partial_starts;  // [S] first of each sequence
  std::vector<int32_t> merge_starts;    // [T + 1] of each row of the step; none for other rows
};

/// Rows of the largest tile for heads of this size.
inline int64_t most_tile_rows(int64_t head_dim) { return head_dim <= 128 ? 128 : 64; }

/// How many units there should be.
struct KeySplit {
  int64_t num_kv_heads = 1;    // a unit is a thread block for each of them
  int64_t num_processors = 0;  // 0: keys are not split
  int64_t most_tile = 128;     // most_tile_rows()
};

/// The sequences of one row, one unit each, the longest first; at least `num_launched` units.
/// `group`: query heads per key-value head, at most 128.
/// With `split` few sequences have units of about equal length over chunks of their keys. Units,
/// partial results and the length of all lists then depend on `num_launched` alone where that is
/// given, since a recorded step needs that; it is the number of the step's rows and sequences.
UnitPlan plan_single_rows(std::span<const PagedSpan> sequences, int64_t num_launched, int64_t group,
                          const KeySplit& split = {});

/// The sequences of more rows that are not packed.
/// Where few rows meet many keys these are split (split-KV), so that all multiprocessors have work.
UnitPlan plan_prompts(std::span<const PagedSpan> sequences, int64_t group,
                      const KeySplit& split = {});

}  // namespace slime::kernels
