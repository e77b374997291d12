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

}  // namespace slime::train
