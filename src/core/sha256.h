#pragma once

/// SHA-256 (FIPS 180-4) of bytes, for files that other programs check: our own have CRC-32C
/// (core/crc32c.h), which is faster.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime {

class Sha256 {
 public:
  void add(std::string_view bytes);
  /// 64 hexadecimal digits. The object is used up.
  std::string finish();

 private:
  void take_block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t num_bytes_ = 0;
};

std::string sha256(std::string_view bytes);

}  // namespace slime
