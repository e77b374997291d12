#include "engine/cache_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/paged_attention.h"

namespace slime::engine {
namespace {

/// But for the keys of an indexer, which some layers have beside their own.
bool are_alike(model::CacheSpec one, const model::CacheSpec& other) {
  one.index_size = other.index_size;
  return one == other;
}

}  // namespace

model::CacheSpec cache_of_tokens(std::span<const model::BlockNeeds> blocks) {
  const auto first = std::ranges::find_if(blocks, keeps_tokens);
  if (first == blocks.end())
    throw ConfigError("no layer keeps keys and values, and the engine counts tokens by them");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (keeps_tokens(blocks[i]) && !are_alike(blocks[i].cache, first->cache))
      throw ConfigError(fmt::format(
          "layer {} keeps keys and values of another shape than layer {}; the engine holds those "
          "of one shape",
          i, first - blocks.begin()));
  }
  return first->cache;
}

int64_t state_bytes(std::span<const model::BlockNeeds> blocks) {
  int64_t bytes = 0;
  for (const model::BlockNeeds& block : blocks) bytes += block.cache.state_bytes;
  return bytes;
}

PageWindow page_window(const model::Network& network) {
  PageWindow window{.block_tokens = kernels::kBlockTokens};
  const std::vector<int64_t>& by_layer = network.config().window;
  const auto blocks = network.blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const int64_t tokens = i < by_layer.size() ? by_layer[i] : 0;
    if (blocks[i].cache.state_bytes > 0 || (keeps_tokens(blocks[i]) && tokens == 0)) return {};
    window.tokens = std::max(window.tokens, tokens);
  }
  return window;
}

int64_t index_size(std::span<const model::BlockNeeds> blocks) {
  int64_t size = 0;
  for (const model::BlockNeeds& block : blocks) {
    const int64_t of_block = block.cache.index_size;
    if (of_block > 0 && size > 0 && of_block != size)
      throw ConfigError("indexers of layers have keys of different sizes");
    size = std::max(size, of_block);
  }
  return size;
}

kernels::RotaryShape attention_heads(const model::Network& network) {
  const model::CacheSpec cache = cache_of_tokens(network.blocks());
  return {cache.heads * cache.queries_per_head, cache.heads, cache.key_size, 0};
}

}  // namespace slime::engine
