#include "reward/digits.h"

#include <algorithm>
#include <array>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

/// The zeros of Unicode's decimal digits (general category Nd); nine digits follow each.
constexpr auto kZeros = std::to_array<char32_t>(
    {0x0660,  0x06F0,  0x07C0,  0x0966,  0x09E6,  0x0A66,  0x0AE6,  0x0B66,  0x0BE6,
     0x0C66,  0x0CE6,  0x0D66,  0x0DE6,  0x0E50,  0x0ED0,  0x0F20,  0x1040,  0x1090,
     0x17E0,  0x1810,  0x1946,  0x19D0,  0x1A80,  0x1A90,  0x1B50,  0x1BB0,  0x1C40,
     0x1C50,  0xA620,  0xA8D0,  0xA900,  0xA9D0,  0xA9F0,  0xAA50,  0xABF0,  0xFF10,
     0x104A0, 0x11066, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E950, 0x1FBF0});

}  // namespace

std::string with_ascii_digits(std::string_view text) {
  if (std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return std::string(text);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t point = next_point(text, i);
    const auto* next = std::upper_bound(kZeros.begin(), kZeros.end(), point);
    if (next != kZeros.begin() && point - *(next - 1) < 10 && i - begin > 1) {
      out += static_cast<char>('0' + (point - *(next - 1)));
    } else if (point == 0x2212) {
      out += '-';
    } else {
      out += text.substr(begin, i - begin);
    }
  }
  return out;
}

}  // namespace slime::reward
