#pragma once

/// Shape of the KV cache per token, as the step runners need it: pages are of one size, so all
/// layers have one shape.

#include <span>

#include "engine/page_window.h"
#include "kernels/device.h"
#include "model/network.h"

namespace slime::engine {

/// Of the blocks that keep keys and values, where others may keep a state of each request. Throws
/// ConfigError where the former differ, or where there are none.
model::CacheSpec cache_of_tokens(std::span<const model::BlockNeeds> blocks);
inline bool keeps_tokens(const model::BlockNeeds& block) { return block.cache.heads > 0; }

/// Numbers of an indexer's key; 0 where no layer has an indexer. Throws ConfigError where they differ.
int64_t index_size(std::span<const model::BlockNeeds> blocks);

/// Bytes of a request's state over all layers; 0 where no layer keeps one.
int64_t state_bytes(std::span<const model::BlockNeeds> blocks);

/// The widest window, where every layer with keys has one and no other keeps a state; the same with
/// groups of layers where some have one; none elsewhere. `windows`: tokens that each layer sees, 0 for
/// all. `longest`: tokens that a request can have at most.
PageWindow page_window(std::span<const model::BlockNeeds> blocks, std::span<const int64_t> windows,
                       int64_t longest);

/// The same as attention kernels take it.
kernels::RotaryShape attention_heads(const model::Network& network);

}  // namespace slime::engine
