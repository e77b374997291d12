#pragma once

/// Random bytes, keyed checksums and comparisons for secrets that processes share.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace slime::net {

/// Of HMAC-SHA256 (RFC 2104).
using Proof = std::array<unsigned char, 32>;

Proof hmac_sha256(std::string_view key, std::string_view message);

/// Takes the same time wherever they differ.
bool is_same_proof(const Proof& a, const Proof& b);

/// Of the system's entropy.
std::string random_bytes(std::size_t count);

}  // namespace slime::net
