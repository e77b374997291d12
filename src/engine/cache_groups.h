#pragma once

/// KV cache groups: for each layer, the block table that names its pages and its place in a page.
///
/// All pages are of one size, that of a group's layers. Group 0 has the layers that see all tokens, the
/// others those with a window, in their order; the last may be smaller. Without such groups
/// (PageWindow::num_groups 0) group 0 has all layers.

#include <cstdint>
#include <span>
#include <vector>

#include "model/costs.h"

namespace slime::engine {

struct CacheGroups {
  struct Place {
    int64_t group = -1;  // -1: the layer has no keys
    int64_t slot = -1;   // among the layers of a page
  };
  std::vector<Place> of_layer;
  int64_t num_groups = 1;  // with group 0
  int64_t num_slots = 0;
};

/// `windows`: tokens that each layer sees, 0 for all; layers behind its end see all.
CacheGroups cache_groups(std::span<const model::BlockNeeds> blocks,
                         std::span<const int64_t> windows, int64_t num_window_groups);

/// All layers in one.
CacheGroups one_group(std::span<const model::BlockNeeds> blocks);

}  // namespace slime::engine
