#include "train/shards.h"

#include <algorithm>

#include "core/divide_up.h"

namespace slime::train {
namespace {

/// Elements of 64 bytes or more, whatever their type.
constexpr int64_t kCacheLine = 64;

}  // namespace

std::vector<comm::Range> shards_of(int64_t num_elements, int num_ranks) {
  const int64_t ranks = num_ranks;
  const int64_t size = divide_up(divide_up(num_elements, kCacheLine), ranks) * kCacheLine;
  std::vector<comm::Range> shards;
  for (int64_t rank = 0; rank < ranks; ++rank)
    shards.push_back(
        {std::min(rank * size, num_elements), std::min((rank + 1) * size, num_elements)});
  return shards;
}

std::vector<ShardedPart> sharded_parts(int64_t num_elements, int64_t experts_begin) {
  std::vector<ShardedPart> parts{{{0, experts_begin}, comm::Axis::kDpCp}};
  if (experts_begin < num_elements)
    parts.push_back({{experts_begin, num_elements}, comm::Axis::kEdp});
  return parts;
}

std::vector<ShardedPart> sharded_parts(const model::Weights& weights) {
  return sharded_parts(weights.num_elements(), weights.experts_begin());
}

std::vector<comm::Range> shards_of(const ShardedPart& part, int num_ranks) {
  std::vector<comm::Range> shards = shards_of(part.elements.size(), num_ranks);
  for (comm::Range& shard : shards) {
    shard.begin += part.elements.begin;
    shard.end += part.elements.begin;
  }
  return shards;
}

}  // namespace slime::train
