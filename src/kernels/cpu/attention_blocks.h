#pragma once

/// Tiling of attention over segments into blocks of queries and keys, shared by all block-wise
/// forms (kernels/tree_attention.h defines a segment).

#include <vector>

#include "kernels/device.h"

namespace slime::kernels::cpu {

constexpr int64_t kKeyBlock = 128;
/// Query rows of a block, over the heads that share a key-value head.
constexpr int64_t kStackedRows = 192;

/// Rows and columns of the fused matrix [tokens, (heads + 2 kv_heads) dim].
struct AttentionLayout {
  int64_t heads, kv_heads, dim, group, width, out_width, query_block;

  explicit AttentionLayout(const RotaryShape& shape);
  int64_t key_column(int64_t kv) const { return (heads + kv) * dim; }
  int64_t value_column(int64_t kv) const { return (heads + kv_heads + kv) * dim; }
};

/// A run of keys, at most kKeyBlock, that one segment of the chain gives to a block of queries.
struct KeyRange {
  int64_t begin, end;  // rows
  int64_t position;    // of `begin`, counted from the root of the chain
};

/// Queries [begin, end) of one segment, and the blocks of keys that any of them sees, oldest first.
struct QueryBlock {
  int64_t begin, end;
  int64_t position;  // of `begin`
  std::vector<KeyRange> keys;
};

/// All query blocks of these segments, in order.
std::vector<QueryBlock> query_blocks(const std::vector<Segment>& segments,
                                     const std::vector<size_t>& chosen, const AttentionLayout& at,
                                     int64_t window);

std::vector<size_t> all_of(const std::vector<Segment>& segments);
/// Segments by the tree they belong to: only queries of a tree touch its keys.
std::vector<std::vector<size_t>> trees_of(const std::vector<Segment>& segments);

/// Columns [low, high) of a block of keys that the query at `position` sees.
struct Visible {
  int64_t low, high;
};
Visible visible(const KeyRange& keys, int64_t position, int64_t window);

}  // namespace slime::kernels::cpu
