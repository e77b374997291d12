#pragma once

/// Keys of a request's tokens in the prefix tree (core/token_span.h), in a space of their own where equal
/// tokens do not mean equal keys and values (sequences on both sides of the model's rotary switch), or
/// where the caller does not want to share them (cache_salt).

#include <span>

#include "engine/request.h"

namespace slime::engine {

/// Of the first `count` tokens, which are all sampled. They are made once, and kept with the request: valid
/// until the next call.
std::span<const TokenKey> prefix_keys(Request& request, int64_t count);

}  // namespace slime::engine
