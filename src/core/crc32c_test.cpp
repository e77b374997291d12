#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace slime {
namespace {

/// One bit at a time, straight from the definition.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, EqualsTheDefinitionAtEveryLengthAndAlignment) {
  std::string bytes;
  for (int i = 0; i < 160; ++i) bytes.push_back(static_cast<char>(i * 37 + 11));
  for (const size_t length : {1, 7, 8, 9, 127, 128, 129}) {
    for (size_t offset = 0; offset < 8; ++offset) {
      const std::string_view piece = std::string_view(bytes).substr(offset, length);
      EXPECT_EQ(crc32c(piece), slow_crc32c(piece)) << length << " bytes at " << offset;
    }
  }
}

TEST(Crc32c, ContinuesOverPieces) {
  EXPECT_EQ(crc32c("6789", crc32c("12345")), crc32c("123456789"));
}

}  // namespace
}  // namespace slime
