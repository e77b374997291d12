#pragma once

/// What a network's blocks keep per token, as the step runners need it: they plan attention once
/// for all layers, so all layers have one shape.

#include <span>

#include "kernels/device.h"
#include "model/network.h"

namespace slime::engine {

/// Throws ConfigError where blocks differ, or keep a state per request.
model::CacheSpec common_cache(std::span<const model::BlockNeeds> blocks);

/// The same as attention kernels take it.
kernels::RotaryShape attention_heads(const model::Network& network);

}  // namespace slime::engine
