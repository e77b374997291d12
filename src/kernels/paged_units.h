#pragma once

/// Plans paged attention on the host: which units of work the tiled kernel gets.
///
/// Query rows of a sequence times the query heads that share a key-value head are packed into tiles
/// of 16, 64 or 128; a tile of few rows against many keys is further cut into chunks of keys, whose
/// partial results are merged. Sequences with one new token (decode) and with many (prefill) go to
/// separate launches, because they want different tiles.

#include <cstdint>
#include <span>
#include <vector>

namespace slime::kernels {

struct PagedSpan {
  int64_t num_rows = 0;  // new tokens
  int64_t num_keys = 0;  // all tokens of the sequence, the new ones included
};

struct UnitPlan {
  int64_t tile = 16;
  int64_t num_units = 0;  // with those that are switched off
  bool splits = false;
  bool one_row = false;  // decode: every sequence of the plan has one row
  int32_t chunk_tokens = 0;
  std::vector<int32_t> sequence_U, tile_U, chunk_U;
  std::vector<uint8_t> is_on_U;
  std::vector<int32_t> partial_starts;  // [S + 1]
  std::vector<int32_t> merge_starts;    // [T + 1]
};

struct UnitOptions {
  int64_t group = 1;         // query heads per key-value head
  int64_t num_kv_heads = 1;  // each unit is launched once per key-value head
  int64_t num_processors = 1;
};

/// How many units decode of this many sequences is launched with, whatever their lengths: a
/// recorded step needs a constant. More than sequences when splitting pays.
int64_t decode_units(int64_t num_sequences, const UnitOptions& options);

/// Every sequence has one row; decode_units(num_launched) units, longest sequences first.
/// `num_launched` >= their number: the batch that the kernels are launched for; the tables of
/// starts go on to its end.
UnitPlan plan_decode(std::span<const PagedSpan> sequences, int64_t num_launched,
                     const UnitOptions& options);

/// Any rows. One or two plans without splits: sequences of one row, and the others.
std::vector<UnitPlan> plan_mixed(std::span<const PagedSpan> sequences, const UnitOptions& options);

}  // namespace slime::kernels
