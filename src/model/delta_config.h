#pragma once

/// Layers that are gated delta nets, as config.json describes them.

#include <cstdint>
#include <vector>

#include "kernels/gated_delta.h"

namespace slime::model {

struct DeltaConfig {
  std::vector<bool> in_layer;  // [layers]; empty: no layer is one
  kernels::DeltaShape shape;
  int64_t taps = 0;  // of the convolution
  /// Files hold [q, k, v, z] and [b, a] of each key head together, instead of each of all heads.
  bool is_grouped_by_key_head = false;

  bool is_in(int64_t layer) const {
    return layer < static_cast<int64_t>(in_layer.size()) && in_layer[static_cast<size_t>(layer)];
  }
  bool operator==(const DeltaConfig&) const = default;
};

}  // namespace slime::model
