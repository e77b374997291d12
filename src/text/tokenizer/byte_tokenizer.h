#pragma once

/// A tokenizer.json whose vocabulary is the 256 bytes, and tokens of its own: for made-up models.

#include <span>
#include <string_view>

#include "core/json.h"

namespace slime::text {

/// Byte-level BPE without merges: byte b has id b, `added` have the ids from 256 on. `specials` of them,
/// the first ones, are left out of decoded text where the reader wants that.
json::object byte_tokenizer(std::span<const std::string_view> added = {}, std::size_t specials = 0);

}  // namespace slime::text
