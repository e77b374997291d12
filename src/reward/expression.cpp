#include "reward/expression.h"

#include <algorithm>
#include <array>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

constexpr std::size_t kLengthLimit = 2'000;
/// Of parentheses, signs and powers; each level costs a few stack frames.
constexpr int kDepthLimit = 100;

/// Names of at most two letters that are functions, constants or keywords elsewhere. Longer ones
/// never get here: an expression of more than two letters is not evaluated at all.
constexpr auto kForeignNames = std::to_array<std::string_view>(
    {"all", "as", "csc", "eye", "ff",  "fft", "fu", "gff", "hn1", "hn2", "id", "if", "im",
     "in",  "is", "jn",  "li",  "nan", "ntt", "oo", "or",  "re",  "rf",  "yn", "zoo"});

/// English names of Greek letters with at most two letters.
constexpr auto kGreekNames = std::to_array<std::string_view>({"mu", "nu", "xi"});

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Token {
  enum class Kind { kInteger, kDecimal, kSymbol, kPi, kFunction, kSign, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;  // of kSign: "+", "**", ...
  bool is_piece = false;  // of a name that fell apart, such as the 2 of "x2"
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  /// Nothing for a character or name outside the language.
  std::optional<std::vector<Token>> tokens() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      const bool is_read = is_letter(c) || c == '_'                       ? name()
                           : is_digit(c) || (c == '.' && digit_follows()) ? number()
                                                                          : sign();
      if (!is_read) return std::nullopt;
    }
    tokens_.push_back({});
    return std::move(tokens_);
  }

 private:
  bool digit_follows() const {
    return position_ + 1 < text_.size() && is_digit(text_[position_ + 1]);
  }

  void skip_digits() {
    while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
  }

  bool name() {
    const std::size_t begin = position_;
    while (position_ < text_.size() &&
           (is_letter(text_[position_]) || is_digit(text_[position_]) || text_[position_] == '_')) {
      ++position_;
    }
    const std::string_view word = text_.substr(begin, position_ - begin);
    if (word == "sqrt" || word == "ln") {
      tokens_.push_back({Token::Kind::kFunction, word});
    } else if (word == "pi") {
      tokens_.push_back({Token::Kind::kPi, word});
    } else if (contains(kForeignNames, word)) {
      return false;
    } else if (word.find('_') != std::string_view::npos || contains(kGreekNames, word)) {
      tokens_.push_back({Token::Kind::kSymbol, word});
    } else {
      fall_apart(word);
    }
    return true;
  }

  /// "ab2" -> a b 2
  void fall_apart(std::string_view word) {
    for (std::size_t i = 0; i < word.size();) {
      std::size_t end = i + 1;
      while (is_digit(word[i]) && end < word.size() && is_digit(word[end])) ++end;
      tokens_.push_back({is_digit(word[i]) ? Token::Kind::kInteger : Token::Kind::kSymbol,
                         word.substr(i, end - i), true});
      i = end;
    }
  }

  bool number() {
    const std::size_t begin = position_;
    skip_digits();
    const std::string_view whole = text_.substr(begin, position_ - begin);
    bool is_decimal = false;
    if (position_ < text_.size() && text_[position_] == '.') {
      is_decimal = true;
      ++position_;
      skip_digits();
    }
    if (position_ < text_.size() && (text_[position_] == 'e' || text_[position_] == 'E')) {
      std::size_t digits = position_ + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (digits < text_.size() && is_digit(text_[digits])) {
        is_decimal = true;
        position_ = digits;
        skip_digits();
      }
    }
    // As in Python: 007 and 1_000, 0x1f, 2j are no decimal integers, and mean something else or
    // nothing.
    if (!is_decimal && whole.size() > 1 && whole.front() == '0' &&
        whole.find_first_not_of('0') != std::string_view::npos) {
      return false;
    }
    if (position_ < text_.size()) {
      const char next = text_[position_];
      if (next == '_' || next == 'j' || next == 'J' || next == '.') return false;
      if (!is_decimal && whole == "0" && (next == 'x' || next == 'o' || next == 'b')) return false;
    }
    tokens_.push_back({is_decimal ? Token::Kind::kDecimal : Token::Kind::kInteger,
                       text_.substr(begin, position_ - begin)});
    return true;
  }

  bool sign() {
    const std::size_t length = text_.substr(position_).starts_with("**") ? 2 : 1;
    if (std::string_view("+-*/^()!").find(text_[position_]) == std::string_view::npos) return false;
    const std::string_view text = text_.substr(position_, length);
    tokens_.push_back({Token::Kind::kSign, text == "**" ? "^" : text});
    position_ += length;
    return true;
  }

  const std::string_view text_;
  std::size_t position_ = 0;
  std::vector<Token> tokens_;
};

/// Recursive descent with a limit on the depth. Each function returns false on failure.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::optional<Expression> parse() {
    if (!sum() || token().kind != Token::Kind::kEnd) return std::nullopt;
    return std::move(steps_);
  }

 private:
  using Kind = ExpressionStep::Kind;

  const Token& token() const { return tokens_[next_]; }
  bool at(std::string_view sign) const {
    return token().kind == Token::Kind::kSign && token().text == sign;
  }
  bool accept(std::string_view sign) {
    if (!at(sign)) return false;
    ++next_;
    return true;
  }
  void emit(Kind kind, std::string_view text = {}) { steps_.push_back({kind, std::string(text)}); }

  /// Runs a level of the grammar within the limit.
  template <typename Rule>
  bool deeper(const Rule& rule) {
    if (++depth_ > kDepthLimit) return false;
    const bool is_read = rule();
    --depth_;
    return is_read;
  }

  bool sum() {
    if (!product()) return false;
    while (at("+") || at("-")) {
      const Kind kind = at("+") ? Kind::kAdd : Kind::kSubtract;
      ++next_;
      if (!product()) return false;
      emit(kind);
    }
    return true;
  }

  bool product() {
    if (!with_signs([this] { return power(); })) return false;
    while (true) {
      if (at("*") || at("/")) {
        const Kind kind = at("*") ? Kind::kMultiply : Kind::kDivide;
        ++next_;
        if (!with_signs([this] { return power(); })) return false;
        emit(kind);
      } else if (at("(") ||
                 (token().kind != Token::Kind::kSign && token().kind != Token::Kind::kEnd)) {
        if (is_number(token()) && !token().is_piece && is_number(tokens_[next_ - 1]))
          return false;  // 1.5.5
        if (!power()) return false;
        emit(Kind::kMultiply);
      } else {
        return true;
      }
    }
  }

  static bool is_number(const Token& token) {
    return token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kDecimal;
  }

  template <typename Rule>
  bool with_signs(const Rule& rule) {
    bool is_negative = false;
    while (at("+") || at("-")) {
      is_negative ^= at("-");
      ++next_;
    }
    if (!rule()) return false;
    if (is_negative) emit(Kind::kNegate);
    return true;
  }

  bool power() {
    if (!postfix()) return false;
    if (!accept("^")) return true;
    if (!deeper([this] { return with_signs([this] { return power(); }); })) return false;
    emit(Kind::kPower);
    return true;
  }

  bool postfix() {
    if (!primary()) return false;
    if (accept("!")) emit(Kind::kFactorial);
    return !at("!");
  }

  bool primary() {
    const Token current = token();
    switch (current.kind) {
      case Token::Kind::kInteger:
        emit(Kind::kInteger, current.text);
        break;
      case Token::Kind::kDecimal:
        emit(Kind::kDecimal, current.text);
        break;
      case Token::Kind::kSymbol:
        emit(Kind::kSymbol, current.text);
        break;
      case Token::Kind::kPi:
        emit(Kind::kPi);
        break;
      case Token::Kind::kFunction:
        ++next_;
        if (!deeper([this] { return at("(") ? parenthesis() : power(); })) return false;
        emit(current.text == "ln" ? Kind::kLn : Kind::kSqrt);
        return true;
      case Token::Kind::kSign:
        return deeper([this] { return parenthesis(); });
      case Token::Kind::kEnd:
        return false;
    }
    ++next_;
    return true;
  }

  bool parenthesis() { return accept("(") && sum() && accept(")"); }

  const std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int depth_ = 0;
  Expression steps_;
};

}  // namespace

std::optional<Expression> parse_expression(std::string_view text) {
  if (text.size() > kLengthLimit) return std::nullopt;
  std::optional<std::vector<Token>> tokens = Lexer(text).tokens();
  if (!tokens) return std::nullopt;
  return Parser(std::move(*tokens)).parse();
}

}  // namespace slime::reward
