#include "kernels/cpu/attention_blocks.h"

#include <algorithm>
#include <numeric>

namespace slime::kernels::cpu {
namespace {

/// Positions from the root: rows of a chain are consecutive.
std::vector<int64_t> first_positions(const std::vector<Segment>& segments) {
  std::vector<int64_t> first(segments.size(), 0);
  for (size_t i = 0; i < segments.size(); ++i) {
    const int32_t parent = segments[i].parent;
    if (parent < 0) continue;
    const auto p = static_cast<size_t>(parent);
    first[i] = first[p] + segments[p].end - segments[p].begin;
  }
  return first;
}

/// Queries [begin, end) of segment `index`.
QueryBlock query_block(const std::vector<Segment>& segments, const std::vector<int64_t>& first,
                       size_t index, int64_t begin, int64_t end, int64_t window) {
  QueryBlock block{begin, end, first[index] + begin - segments[index].begin, {}};
  const int64_t oldest = window > 0 ? block.position - window + 1 : 0;
  std::vector<int64_t> chain;
  for (auto i = static_cast<int64_t>(index); i >= 0; i = segments[static_cast<size_t>(i)].parent)
    chain.push_back(i);
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const auto i = static_cast<size_t>(*it);
    const int64_t last = i == index ? end : segments[i].end;
    const int64_t start = segments[i].begin + std::max<int64_t>(0, oldest - first[i]);
    for (int64_t row = start; row < last; row += kKeyBlock) {
      block.keys.push_back(
          {row, std::min(last, row + kKeyBlock), first[i] + row - segments[i].begin});
    }
  }
  return block;
}

}  // namespace

AttentionLayout::AttentionLayout(const RotaryShape& shape)
    : heads(shape.num_heads),
      kv_heads(shape.num_kv_heads),
      dim(shape.head_dim),
      group(heads / kv_heads),
      width((heads + 2 * kv_heads) * dim),
      out_width(heads * dim),
      query_block(std::clamp<int64_t>(kStackedRows / group, 16, 128)) {}

std::vector<QueryBlock> query_blocks(const std::vector<Segment>& segments,
                                     const std::vector<size_t>& chosen, const AttentionLayout& at,
                                     int64_t window) {
  const std::vector<int64_t> first = first_positions(segments);
  std::vector<QueryBlock> blocks;
  for (const size_t i : chosen) {
    if (!segments[i].has_queries) continue;
    for (int64_t row = segments[i].begin; row < segments[i].end; row += at.query_block) {
      blocks.push_back(query_block(segments, first, i, row,
                                   std::min(segments[i].end, row + at.query_block), window));
    }
  }
  return blocks;
}

std::vector<size_t> all_of(const std::vector<Segment>& segments) {
  std::vector<size_t> all(segments.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

std::vector<std::vector<size_t>> trees_of(const std::vector<Segment>& segments) {
  std::vector<std::vector<size_t>> result;
  std::vector<size_t> tree_of(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].parent < 0) {
      tree_of[i] = result.size();
      result.emplace_back();
    } else {
      tree_of[i] = tree_of[static_cast<size_t>(segments[i].parent)];
    }
    result[tree_of[i]].push_back(i);
  }
  return result;
}

Visible visible(const KeyRange& keys, int64_t position, int64_t window) {
  const int64_t size = keys.end - keys.begin;
  const int64_t high = std::clamp<int64_t>(position - keys.position + 1, 0, size);
  const int64_t low =
      window > 0 ? std::clamp<int64_t>(position - window + 1 - keys.position, 0, high) : 0;
  return {low, high};
}

}  // namespace slime::kernels::cpu
