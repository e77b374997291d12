#pragma once

/// The tokens of a template with a position, as both halves of the parser read them.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/lexer.h"

namespace slime::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  /// The last token, kEnd, is never passed.
  Token next() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }
  int line() const { return peek().line; }

  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_operator(std::string_view op, std::size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kName && peek(ahead).text == name;
  }
  bool skip_operator(std::string_view op) { return is_operator(op) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }

  void expect_operator(std::string_view op) {
    if (!skip_operator(op)) fail(fmt::format("'{}' expected, not {}", op, description()));
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) fail(fmt::format("a name expected, not {}", description()));
    return next().text;
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail(fmt::format("{} expected, not {}", what, description()));
    next();
  }

  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{std::move(message), line()};
  }

  /// The current token in words.
  std::string description() const {
    switch (peek().kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kOpenOutput:
        return "{{";
      case TokenKind::kCloseOutput:
        return "}}";
      case TokenKind::kOpenTag:
        return "{%";
      case TokenKind::kCloseTag:
        return "%}";
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      case TokenKind::kName:
      case TokenKind::kOperator:
        break;
    }
    return "'" + peek().text + "'";
  }

  /// Nesting of the parser itself. Brackets, signs and statements recurse; each level is a few
  /// stack frames.
  class Nesting {
   public:
    explicit Nesting(TokenStream& stream) : stream_(stream) {
      if (++stream_.nesting_ > kMaxNesting) {
        --stream_.nesting_;
        stream_.fail(fmt::format("nested deeper than {}", kMaxNesting));
      }
    }
    ~Nesting() { --stream_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  static constexpr int kMaxNesting = 300;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace slime::text::jinja
