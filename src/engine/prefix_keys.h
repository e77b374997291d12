#pragma once

/// Keys of the prefix tree: the tokens of a request, in a space of their own where equal tokens do not
/// mean equal keys and values (sequences on both sides of the model's rotary switch), or where the
/// caller does not want to share them (cache_salt).

#include <span>

#include "engine/request.h"

namespace slime::engine {

/// Of the first `count` tokens. Two requests have the same keys only where salt, side of the switch and
/// tokens are the same. Valid until the request's tokens change.
std::span<const TokenId> prefix_keys(Request& request, int64_t count);

/// Whether two requests have one space of keys.
bool share_prefixes(const Request& a, const Request& b);

}  // namespace slime::engine
