#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "text/unicode/python_text.h"

namespace slime::text::jinja {

using namespace python;  // its str methods are the filters and methods of templates

namespace {

// Longest first.
constexpr std::array<std::string_view, 27> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};

/// \r\n and \r become \n, and one newline at the end goes, as Jinja does before anything else.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
      continue;
    }
    out += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank_byte(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text_and_tag();
    push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{std::move(message), line_};
  }

  bool starts(std::string_view text) const { return source_.substr(at_, text.size()) == text; }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count),
                                         '\n'));
    at_ += count;
  }

  Token& push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, std::move(text), {}, line_});
    return tokens_.back();
  }

  void skip_spaces() {
    const std::string_view rest = source_.substr(at_);
    advance(rest.size() - stripped_left(rest).size());
  }

  /// After a tag or comment: `-` eats all white space, `+` nothing, otherwise the one newline goes
  /// (trim_blocks).
  void end_tag(char mark) {
    if (mark == '-') {
      skip_spaces();
    } else if (mark != '+' && starts("\n")) {
      advance(1);
    }
    at_line_start_ = source_[at_ - 1] == '\n';
  }

  /// The text before a tag, after `-` (all white space goes) or lstrip_blocks (indentation of a tag
  /// goes).
  std::string_view trimmed(std::string_view text, char mark, bool is_output) const {
    if (mark == '-') return stripped_right(text);
    if (mark == '+' || is_output) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !at_line_start_) return text;
    return stripped_left(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void read_text_and_tag() {
    const std::size_t start = at_;
    std::size_t open = start;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        push(TokenKind::kText, std::string(source_.substr(start)));
        at_ = source_.size();
        return;
      }
      const char second = source_[open + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++open;
    }
    const char kind = source_[open + 1];
    std::size_t behind = open + 2;
    char mark = 0;
    if (behind < source_.size() && (source_[behind] == '-' || source_[behind] == '+'))
      mark = source_[behind++];
    const std::string_view text = trimmed(source_.substr(start, open - start), mark, kind == '{');
    if (!text.empty()) push(TokenKind::kText, std::string(text));
    advance(open - start);
    at_line_start_ = false;
    const std::size_t opening = behind - open;
    if (kind == '#') {
      read_comment(opening);
    } else if (kind == '%' && raw_length(behind) != 0) {
      read_raw(raw_length(behind) + opening);
    } else {
      push(kind == '{' ? TokenKind::kOpenOutput : TokenKind::kOpenTag);
      advance(opening);
      read_expression(kind == '{');
    }
  }

  void read_comment(std::size_t opening) {
    const std::size_t end = source_.find("#}", at_ + opening);
    if (end == std::string_view::npos) fail("a comment is not closed: #} is missing");
    const char last = end > at_ + opening ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(last == '-' || last == '+' ? last : '\0');
  }

  /// Bytes of "  raw  %}" at `at`, or 0.
  std::size_t raw_length(std::size_t at) const { return keyword_length(at, "raw"); }

  std::size_t keyword_length(std::size_t at, std::string_view word) const {
    const std::size_t start = at;
    while (at < source_.size() && is_blank_byte(source_[at])) ++at;
    if (source_.substr(at, word.size()) != word) return 0;
    at += word.size();
    while (at < source_.size() && is_blank_byte(source_[at])) ++at;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    return source_.substr(at, 2) == "%}" ? at + 2 - start : 0;
  }

  void read_raw(std::size_t opening) {
    advance(opening);
    if (source_[at_ - 3] == '-') skip_spaces();
    at_line_start_ = false;
    const std::size_t start = at_;
    for (std::size_t open = source_.find("{%", start); open != std::string_view::npos;
         open = source_.find("{%", open + 2)) {
      std::size_t behind = open + 2;
      char mark = 0;
      if (behind < source_.size() && (source_[behind] == '-' || source_[behind] == '+'))
        mark = source_[behind++];
      const std::size_t length = keyword_length(behind, "endraw");
      if (length == 0) continue;
      const std::string_view text = trimmed(source_.substr(start, open - start), mark, false);
      if (!text.empty()) push(TokenKind::kText, std::string(text));
      advance(behind + length - start);
      const char last = source_[at_ - 3];
      end_tag(last == '-' || last == '+' ? last : '\0');
      return;
    }
    fail("a raw block is not closed: {% endraw %} is missing");
  }

  void read_expression(bool is_output) {
    const std::string_view close = is_output ? "}}" : "%}";
    std::string brackets;
    while (true) {
      skip_spaces();
      if (at_ >= source_.size()) fail(fmt::format("a tag is not closed: {} is missing", close));
      if (brackets.empty()) {
        const bool marked = starts("-") || (!is_output && starts("+"));
        if (source_.substr(at_ + (marked ? 1 : 0), 2) == close) {
          const char mark = marked ? source_[at_] : '\0';
          push(is_output ? TokenKind::kCloseOutput : TokenKind::kCloseTag);
          advance(marked ? 3 : 2);
          if (!is_output) {
            end_tag(mark);
          } else if (mark == '-') {
            skip_spaces();
            at_line_start_ = source_[at_ - 1] == '\n';
          }
          return;
        }
      }
      read_token(brackets);
    }
  }

  void read_token(std::string& brackets) {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      push(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
      at_ = end;
      return;
    }
    for (const std::string_view op : kOperators) {
      if (!starts(op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty() || brackets.back() != op[0]) fail(fmt::format("unexpected '{}'", op));
        brackets.pop_back();
      }
      if (brackets.size() > 200) fail("brackets nested deeper than 200");
      push(TokenKind::kOperator, std::string(op));
      at_ += op.size();
      return;
    }
    fail(fmt::format("unexpected character '{}'", c));
  }

  std::string digits(std::string_view allowed) {
    std::string out;
    for (; at_ < source_.size(); ++at_) {
      const char c = source_[at_];
      if (allowed.find(c) != std::string_view::npos) {
        out += c;
      } else if (c != '_' || at_ + 1 >= source_.size() ||
                 allowed.find(source_[at_ + 1]) == std::string_view::npos) {
        break;
      }
    }
    return out;
  }

  Value to_integer(std::string_view text, int base) const {
    Integer value = 0;
    for (const char c : text) {
      const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(value, Integer{base}, &value) ||
          __builtin_add_overflow(value, Integer{digit}, &value)) {
        fail("an integer of more than 128 bits");
      }
    }
    return value;
  }

  void read_number() {
    constexpr std::string_view kDecimal = "0123456789";
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
      if (base != 0) {
        at_ += 2;
        const std::string text = digits(base == 16  ? "0123456789abcdefABCDEF"
                                        : base == 8 ? "01234567"
                                                    : "01");
        if (text.empty()) fail("a number without digits");
        push(TokenKind::kInteger).number = to_integer(text, base);
        return;
      }
    }
    std::string text = digits(kDecimal);
    bool is_float = false;
    // After a dot, "1.2" is two indices: xs.1.2
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                           tokens_.back().text == ".";
    if (!after_dot && at_ + 1 < source_.size() && source_[at_] == '.' &&
        is_digit(source_[at_ + 1])) {
      ++at_;
      text += "." + digits(kDecimal);
      is_float = true;
    }
    if (!after_dot && at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
      std::size_t next = at_ + 1;
      if (next < source_.size() && (source_[next] == '+' || source_[next] == '-')) ++next;
      if (next < source_.size() && is_digit(source_[next])) {
        text += source_.substr(at_, next - at_);
        at_ = next;
        text += digits(kDecimal);
        is_float = true;
      }
    }
    if (is_float) {
      push(TokenKind::kFloat).number = std::strtod(text.c_str(), nullptr);
    } else {
      if (text.size() > 1 && text.find_first_not_of('0') != std::string::npos && text[0] == '0') {
        fail("a number with a leading zero");
      }
      push(TokenKind::kInteger).number = to_integer(text, 10);
    }
  }

  void read_string(char quote) {
    const int line = line_;
    std::string out;
    std::size_t at = at_ + 1;
    while (true) {
      if (at >= source_.size()) fail("a string is not closed");
      const char c = source_[at++];
      if (c == quote) break;
      if (c == '\\') {
        if (at >= source_.size()) fail("a string is not closed");
        read_escape(at, out);
      } else {
        out += c;
      }
    }
    Token& token = push(TokenKind::kString, std::move(out));
    token.line = line;
    advance(at - at_);
  }

  void read_escape(std::size_t& at, std::string& out) {
    const char c = source_[at++];
    switch (c) {
      case 'n':
        out += '\n';
        return;
      case 't':
        out += '\t';
        return;
      case 'r':
        out += '\r';
        return;
      case 'a':
        out += '\a';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'v':
        out += '\v';
        return;
      case '\\':
      case '\'':
      case '"':
        out += c;
        return;
      case '\n':
        return;
      case 'x':
        return read_code(at, 2, 16, out);
      case 'u':
        return read_code(at, 4, 16, out);
      case 'U':
        return read_code(at, 8, 16, out);
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      --at;
      return read_code(at, 3, 8, out);
    }
    out += '\\';
    out += c;
  }

  void read_code(std::size_t& at, int max_digits, int base, std::string& out) {
    char32_t point = 0;
    int count = 0;
    for (; count < max_digits && at < source_.size(); ++count) {
      const char c = source_[at];
      const int digit = is_digit(c)                              ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                 : 99;
      if (digit >= base) break;
      point = point * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
      ++at;
    }
    if (base == 16 && count != max_digits) fail("a \\x, \\u or \\U escape has too few digits");
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      fail("an escape is no Unicode character");
    append_point(point, out);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  // Nothing but white space since the last newline, seen from the last tag.
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

}  // namespace slime::text::jinja
