#pragma once

/// A token with its place in the text it was made from.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/sample.h"

namespace slime::text {

enum class TokenKind : uint8_t {
  kText,     // of the model's vocabulary
  kAdded,    // an added token, such as <think>
  kSpecial,  // an added token marked special, such as <|im_end|>
};

struct PlacedToken {
  TokenId id = -1;
  uint32_t begin = 0;  // bytes of the text; a token that the tokenizer put there itself has none
  uint32_t end = 0;
  TokenKind kind = TokenKind::kText;
};

/// Where pieces, end to end nearly `source`, begin in it: one place for each, and the end. Equal
/// stretches are laid over each other; what differs between two of them (a space put in front, a
/// composed accent) shares its place. Nothing where no stretch follows within a few thousand bytes.
std::optional<std::vector<uint32_t>> lay_over(std::span<const std::string_view> pieces,
                                              std::string_view source);

}  // namespace slime::text
