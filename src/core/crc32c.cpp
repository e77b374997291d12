#include "core/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace slime {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t update_by_table(uint32_t crc, std::string_view bytes) {
  static constexpr auto kTable = make_table();
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t crc,
                                                                 std::string_view bytes) {
  uint64_t wide = crc;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    bytes.remove_prefix(sizeof(word));
  }
  crc = static_cast<uint32_t>(wide);
  for (const char byte : bytes) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(byte));
  return crc;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t so_far) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  const uint32_t crc = ~so_far;
  return ~(has_instruction ? update_by_instruction(crc, bytes) : update_by_table(crc, bytes));
}

}  // namespace slime
