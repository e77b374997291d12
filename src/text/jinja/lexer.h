#pragma once

/// Lexer of a template, text to tokens: literal text and what stands inside {{ }} and {% %}. White space
/// control is done here: trim_blocks and lstrip_blocks are on, as in every chat template, and `-`
/// and `+` marks are obeyed.

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace slime::text::jinja {

enum class TokenKind {
  kText,        // between tags
  kOpenOutput,  // {{
  kCloseOutput,
  kOpenTag,  // {%
  kCloseTag,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of kText, kName, kString (escapes resolved), kOperator
  Value number;      // of kInteger, kFloat
  int line = 1;
};

/// A template that is no template. `line` counts from 1.
struct SyntaxError {
  std::string message;
  int line = 0;
};

/// The last token is kEnd. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace slime::text::jinja
