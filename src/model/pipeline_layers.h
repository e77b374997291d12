#pragma once

/// Layers of a decoder that a pipeline stage computes.
///
/// The layers are cut into stages x chunks ranges in their order; range i is chunk i / stages of
/// stage i % stages, as in Megatron. With one stage that is all layers.
///
///   8 layers, 2 stages, 2 chunks:   stage 0: [0, 2) [4, 6)     stage 1: [2, 4) [6, 8)

#include <cstdint>
#include <vector>

#include "comm/parallel_layout.h"

namespace slime::model {

struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const LayerRange&) const = default;
};

/// The ranges of a stage, layout.chunks of them. Throws ConfigError when the layers do not divide.
std::vector<LayerRange> layers_of_stage(const comm::ParallelLayout& layout, int stage,
                                        int64_t num_layers);

}  // namespace slime::model
