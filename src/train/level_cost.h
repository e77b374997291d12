#pragma once

/// Cost of shared prefixes for attention kernels without tree support
/// (kernels/gpu/attention_levels.h).

#include "model/network.h"

namespace slime::train {

/// PackingOptions::level_cost of this network on its device. On a GPU a level of attention is a
/// forward kernel, a merge, a backward kernel and a gradient of its own, for few keys: together as
/// long as products for 2,900 more keys a row would take (H200, heads of 128, from steps of Qwen3-0.6B
/// and 4B with and without sharing, before attentions were merged in packs:
/// docs/how/cuda_training.md).
double level_cost_of(model::Network& network);

}  // namespace slime::train
