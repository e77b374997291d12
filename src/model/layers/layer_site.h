#pragma once

/// Construction site of a layer: its block, and the source of its shape and weights.

#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "model/config.h"
#include "model/layers/rotary_table.h"
#include "model/weights_builder.h"

namespace slime::model {

struct LayerSite {
  const ModelConfig& config;
  int index = 0;           // of the block
  const comm::Mesh& mesh;  // outlives the layer
  const RotaryTable& rotary;
  Weights::Builder& builder;  // points at the layer's parameters from then on
  std::string prefix = {};    // of the names of a block that is not among the layers; empty: it is

  /// "model.layers.INDEX." and `tail`, or what the family has for "model.".
  std::string name(std::string_view tail) const {
    if (!prefix.empty()) return prefix + std::string(tail);
    return config.tensor_prefix + "layers." + std::to_string(index) + "." + std::string(tail);
  }
};

}  // namespace slime::model
