#include "engine/cache_shape.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slime::engine {

model::CacheSpec common_cache(std::span<const model::BlockNeeds> blocks) {
  check(!blocks.empty(), "a network has blocks");
  const model::CacheSpec& first = blocks.front().cache;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const model::CacheSpec& cache = blocks[i].cache;
    if (cache.state_bytes > 0 || cache.heads == 0)
      throw ConfigError(fmt::format(
          "layer {} keeps a state per request; the engine holds keys and values of tokens", i));
    model::CacheSpec common = cache;
    common.index_size = first.index_size;
    if (common != first)
      throw ConfigError(fmt::format(
          "layer {} keeps keys and values of another shape than layer 0; the engine holds those of "
          "one shape",
          i));
  }
  return first;
}

kernels::RotaryShape attention_heads(const model::Network& network) {
  const model::CacheSpec cache = common_cache(network.blocks());
  return {cache.heads * cache.queries_per_head, cache.heads, cache.key_size, 0};
}

}  // namespace slime::engine
