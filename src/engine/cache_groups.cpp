#include "engine/cache_groups.h"

#include "core/error.h"
#include "engine/cache_shape.h"

namespace slime::engine {

CacheGroups cache_groups(std::span<const model::BlockNeeds> blocks,
                         std::span<const int64_t> windows, int64_t num_window_groups) {
  CacheGroups groups;
  groups.num_groups = 1 + num_window_groups;
  if (num_window_groups == 0) {
    int64_t slot = 0;
    for (const model::BlockNeeds& block : blocks) {
      const bool has_keys = keeps_tokens(block);
      groups.of_layer.push_back(has_keys ? CacheGroups::Place{0, slot++} : CacheGroups::Place{});
    }
    groups.num_slots = slot;
    return groups;
  }
  const auto has_window = [&](std::size_t layer) {
    return layer < windows.size() && windows[layer] > 0;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i)
    groups.num_slots += keeps_tokens(blocks[i]) && !has_window(i) ? 1 : 0;
  check(groups.num_slots > 0, "groups of layers with a window are as large as that of the others");
  int64_t num_full = 0, num_windowed = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    CacheGroups::Place& place = groups.of_layer.emplace_back();
    if (!keeps_tokens(blocks[i])) continue;
    if (!has_window(i)) {
      place = {0, num_full++};
      continue;
    }
    place = {1 + num_windowed / groups.num_slots, num_windowed % groups.num_slots};
    ++num_windowed;
  }
  check((num_windowed + groups.num_slots - 1) / groups.num_slots == num_window_groups,
        "layers with a window fill their groups");
  return groups;
}

CacheGroups one_group(std::span<const model::BlockNeeds> blocks) {
  return cache_groups(blocks, {}, 0);
}

}  // namespace slime::engine
