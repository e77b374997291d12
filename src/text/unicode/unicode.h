#pragma once

/// Code points: their properties, and UTF-8 in and out.
///
/// Properties answer as the `tokenizers` library answers, part by part
/// (tools/generate/unicode_tables.py), so they are not those of one Unicode version.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::text {

enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
};

constexpr uint32_t bit(Category category) { return uint32_t{1} << static_cast<int>(category); }

/// Sets of categories, as \p{L}, \p{M} ... name them.
constexpr uint32_t kLetters = bit(Category::kLu) | bit(Category::kLl) | bit(Category::kLt) |
                              bit(Category::kLm) | bit(Category::kLo);
constexpr uint32_t kMarks = bit(Category::kMn) | bit(Category::kMc) | bit(Category::kMe);
constexpr uint32_t kNumbers = bit(Category::kNd) | bit(Category::kNl) | bit(Category::kNo);
constexpr uint32_t kPunctuation = bit(Category::kPc) | bit(Category::kPd) | bit(Category::kPs) |
                                  bit(Category::kPe) | bit(Category::kPi) | bit(Category::kPf) |
                                  bit(Category::kPo);
constexpr uint32_t kSymbols =
    bit(Category::kSm) | bit(Category::kSc) | bit(Category::kSk) | bit(Category::kSo);

/// Bits 0..4 are the category as regular expressions see it; one bit each for the predicates of
/// single steps.
class CodePointProperties {
 public:
  constexpr explicit CodePointProperties(uint16_t bits) : bits_(bits) {}
  constexpr bool in(uint32_t categories) const { return (categories >> (bits_ & 31)) & 1; }
  constexpr bool is_han() const { return bits_ & (1 << 5); }
  constexpr bool is_numeric() const { return bits_ & (1 << 6); }  // step Digits
  constexpr bool is_word() const {
    return bits_ & (1 << 7);
  }  // \w of step Whitespace and of single_word
  constexpr bool is_space() const { return bits_ & (1 << 8); }        // White_Space, \s everywhere
  constexpr bool is_punctuation() const { return bits_ & (1 << 9); }  // step Punctuation
  constexpr bool is_mark() const { return bits_ & (1 << 10); }        // step StripAccents

 private:
  uint16_t bits_;
};

/// The properties of every code point, 2 MB, made at the first call.
class CodePointTable {
 public:
  static const CodePointTable& instance();
  CodePointProperties operator[](char32_t code_point) const {
    return CodePointProperties(bits_[code_point]);
  }

 private:
  CodePointTable();
  std::array<uint16_t, 0x110000> bits_;
};

/// One decoded character of valid UTF-8.
struct DecodedChar {
  char32_t code_point;
  uint32_t length;  // bytes
};

/// Decodes the character at `text`, which must be valid UTF-8 and not at its end.
inline DecodedChar decode_char(const char* text) {
  const auto byte = [text](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

/// Appends the UTF-8 form of a code point that is no surrogate.
void append_utf8(char32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

/// Appends to `out` every character of `bytes` that is decided, with U+FFFD for each maximal prefix
/// that no character can begin with, and returns the number of bytes it covers. What is left (at
/// most 3 bytes) may still become a character.
std::size_t append_decided(std::string_view bytes, std::string& out);

/// Valid UTF-8 for any bytes: an incomplete character at the end also becomes one U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace slime::text
