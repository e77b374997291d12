#include "text/tokenizer/byte_alphabet.h"

#include <array>

#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> stand_in{};
  std::array<int16_t, 0x144> byte{};  // by stand-in; -1 for none

  constexpr Alphabet() {
    byte.fill(-1);
    int next = 0x100;
    for (int i = 0; i < 256; ++i) {
      stand_in[static_cast<std::size_t>(i)] =
          static_cast<char16_t>(stands_for_itself(i) ? i : next++);
      byte[stand_in[static_cast<std::size_t>(i)]] = static_cast<int16_t>(i);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

void append_spelling(std::string_view bytes, std::string& out) {
  for (const char byte : bytes)
    append_utf8(kAlphabet.stand_in[static_cast<unsigned char>(byte)], out);
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const DecodedChar c = decode_char(token.data() + i);
    if (c.code_point >= kAlphabet.byte.size() || kAlphabet.byte[c.code_point] < 0)
      return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[c.code_point]);
    i += c.length;
  }
  return bytes;
}

}  // namespace slime::text
