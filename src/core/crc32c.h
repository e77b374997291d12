#pragma once

/// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4): the checksum of ledger records,
/// checkpoint files and event files. Uses the processor's instruction where it has one.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slime {

/// Checksum of `bytes`. To continue over several pieces pass the result so far: crc32c(b,
/// crc32c(a)) == crc32c(a + b).
uint32_t crc32c(std::string_view bytes, uint32_t so_far = 0);

}  // namespace slime
