#pragma once

/// XXH64, the 64-bit form of xxHash (its specification: github.com/Cyan4973/xxHash, doc/xxhash_spec.md):
/// the checksum of tensors. No defence against somebody who wants two tensors to look the same.

#include <cstdint>
#include <string_view>

namespace slime {

uint64_t xxhash64(std::string_view bytes, uint64_t seed = 0);

}  // namespace slime
