#pragma once

/// Plans tiled attention on the host: which units of work the kernel gets.
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
  int64_t num_rows = 0;  // new tokens
  int64_t num_keys = 0;  // all tokens of the sequence, the new ones included
};

struct UnitPlan {
  int64_t tile = 16;
  int64_t num_units = 0;  // with those that are switched off
  std::vector<int32_t> sequence_U, tile_U;
  std::vector<uint8_t> is_on_U;
};

/// The sequences of one row, one unit each, the longest first; at least `num_launched` units.
/// `group`: query heads per key-value head, at most 128.
UnitPlan plan_single_rows(std::span<const PagedSpan> sequences, int64_t num_launched,
                          int64_t group);

/// The sequences of more rows.
UnitPlan plan_prompts(std::span<const PagedSpan> sequences, int64_t group);

}  // namespace slime::kernels
