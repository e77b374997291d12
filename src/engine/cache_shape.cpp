#include "engine/cache_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/cpu/paged_attention.h"

namespace slime::engine {
namespace {

/// Pages of groups have room for layers that there are not: at most one for so many that there are.
constexpr int64_t kMostEmpty = 4;

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

PageWindow page_window(std::span<const model::BlockNeeds> blocks, std::span<const int64_t> windows,
                       int64_t longest) {
  PageWindow window{.block_tokens = kernels::kBlockTokens};
  int64_t num_full = 0, num_windowed = 0;
  bool has_others = false;  // that a group cannot have
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const int64_t tokens = i < windows.size() ? windows[i] : 0;
    if (blocks[i].cache.state_bytes > 0) return {};
    if (!keeps_tokens(blocks[i])) continue;
    has_others |= blocks[i].cache.index_size > 0;
    ++(tokens > 0 ? num_windowed : num_full);
    window.tokens = std::max(window.tokens, tokens);
  }
  if (num_full == 0 || num_windowed == 0) return num_full == 0 ? window : PageWindow{};
  if (has_others || window.most_held(longest, 0) == longest) return {};
  window.num_groups = divide_up(num_windowed, num_full);
  const int64_t layers = num_full + num_windowed;
  const int64_t empty = window.num_tables() * num_full - layers;
  return kMostEmpty * empty <= layers ? window : PageWindow{};
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
