#pragma once

/// Tokens of a row as text for people: where one ends and the next begins, and which of them are trained.
///
/// With colours, trained tokens are green, and neighbours differ in brightness. Without, trained text
/// stands in double brackets: "2+3?[[5</s>]]". Bytes that would steer a terminal are shown as \x1b.

#include <cstdint>
#include <span>
#include <string>

#include "core/sample.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::report {

/// `mask`: for each token whether it is trained; empty: none is.
std::string shown_tokens(std::span<const TokenId> ids, std::span<const uint8_t> mask,
                         const text::Tokenizer& tokenizer, bool has_color);

}  // namespace slime::report
