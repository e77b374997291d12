#include "text/tokenizer/regex_dialect.h"

#include <optional>
#include <vector>

namespace slime::text {
namespace {

// White_Space and its complement, as the inside of a class.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNonSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Alphabetic, marks, decimal numbers, connectors. Alphabetic is letters, letter numbers and the
// circled letters.
constexpr std::string_view kWordChars =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr int kMaxClassDepth = 16;

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Expected<std::string> run() {
    while (at_ < in_.size() && error_.empty()) translate_one();
    if (!error_.empty()) return failure(error_);
    return std::move(out_);
  }

 private:
  void translate_one() {
    const char c = in_[at_];
    if (c == '\\') {
      atom_ = out_.size();
      const std::optional<std::string> set = shorthand();
      out_ += set ? "[" + *set + "]" : escape();
    } else if (c == '[') {
      atom_ = out_.size();
      out_ += character_class(0);
    } else if (c == '(') {
      open_group();
    } else if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      out_ += take();
    } else if (c == '{') {
      interval();
    } else {
      if (c != '*' && c != '+' && c != '?' && (c & 0xC0) != 0x80) atom_ = out_.size();
      out_ += take();
    }
  }

  char take() { return in_[at_++]; }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  /// \s, \S, \w, \W, \h, \H as the inside of a class, or nothing. Stands on the backslash.
  std::optional<std::string> shorthand() {
    if (at_ + 1 >= in_.size()) return std::nullopt;
    const auto set = [&](std::string_view items) {
      at_ += 2;
      return std::string(items);
    };
    switch (in_[at_ + 1]) {
      case 's':
        return set(kSpaces);
      case 'S':
        return set(kNonSpaces);
      case 'w':
        return set(kWordChars);
      case 'W':
        return set("^" + std::string(kWordChars));
      case 'h':
        return set(kHexDigits);
      case 'H':
        return set("^" + std::string(kHexDigits));
      default:
        return std::nullopt;
    }
  }

  /// Any other escape, up to the end of its braces.
  std::string escape() {
    std::string out(1, take());
    if (at_ == in_.size()) return out;
    if (in_[at_] == 'u') {
      ++at_;
      out = "\\x{" + std::string(in_.substr(at_, 4)) + "}";
      if (in_.size() - at_ < 4) error_ = "\\u needs four hexadecimal digits";
      at_ = std::min(in_.size(), at_ + 4);
      return out;
    }
    const char kind = take();
    out += kind;
    const bool has_braces = kind == 'p' || kind == 'P' || kind == 'x';
    if (has_braces && at_ < in_.size() && in_[at_] == '{') {
      while (at_ < in_.size() && in_[at_] != '}') out += take();
      if (at_ < in_.size()) out += take();
    }
    return out;
  }

  void open_group() {
    if (next_is("(*")) {
      error_ = "\"(*\" is no regular expression of tokenizer files";
      return;
    }
    groups_.push_back(out_.size());
    if (next_is("(?#")) {  // a comment: no group, nothing to match
      groups_.pop_back();
      while (at_ < in_.size() && take() != ')') {
      }
      return;
    }
    out_ += take();
    if (!next_is("?")) return;
    out_ += take();
    // Option letters: Oniguruma's m is PCRE2's s.
    while (at_ < in_.size() &&
           (in_[at_] == 'i' || in_[at_] == 'm' || in_[at_] == 'x' || in_[at_] == '-')) {
      const char option = take();
      out_ += option == 'm' ? 's' : option;
    }
  }

  /// {n}, {n,m}, {n,}, {,m}; anything else in braces is literal, as in both dialects.
  void interval() {
    const std::size_t end = in_.find('}', at_);
    const std::string_view inside =
        end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    if (inside.empty() || inside == "," ||
        inside.find_first_not_of("0123456789,") != std::string_view::npos) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ +=
        inside.front() == ',' ? "{0" + std::string(inside) + "}" : "{" + std::string(inside) + "}";
    at_ = end + 1;
    if (next_is("+")) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
  }

  /// From '[' to its ']', as an expression that matches one character.
  std::string character_class(int depth) {
    if (depth > kMaxClassDepth) {
      error_ = "character classes are nested too deeply";
      return "";
    }
    ++at_;
    bool negated = false;
    if (next_is("^")) {
      negated = true;
      ++at_;
    }
    std::string items;                // what PCRE2 takes between brackets
    std::vector<std::string> nested;  // expressions for one character each
    std::vector<std::string> operands;
    const auto finish_operand = [&] {
      std::string united = items.empty() ? "" : "[" + items + "]";
      for (const std::string& expression : nested)
        united += (united.empty() ? "" : "|") + expression;
      if (!nested.empty()) united = "(?:" + united + ")";
      operands.push_back(std::move(united));
      items.clear();
      nested.clear();
    };
    bool first = true;
    for (;; first = false) {
      if (at_ >= in_.size()) {
        error_ = "a character class has no end";
        return "";
      }
      if (in_[at_] == ']' && !first) break;
      if (next_is("[:") && in_.find(":]", at_) != std::string_view::npos) {
        const std::size_t end = in_.find(":]", at_) + 2;
        items += in_.substr(at_, end - at_);
        at_ = end;
      } else if (in_[at_] == '[') {
        nested.push_back(character_class(depth + 1));
        if (!error_.empty()) return "";
      } else if (next_is("&&")) {
        at_ += 2;
        finish_operand();
      } else if (in_[at_] == '\\') {
        const std::optional<std::string> set = shorthand();
        if (set && set->front() == '^') {
          nested.push_back("[" + *set + "]");
        } else {
          items += set ? *set : escape();
        }
      } else {
        if (in_[at_] == ']' || (in_[at_] == '^' && items.empty())) items += '\\';
        items += take();
      }
    }
    ++at_;
    if (operands.empty() && nested.empty()) return (negated ? "[^" : "[") + items + "]";
    finish_operand();
    std::string expression;
    for (std::size_t i = 1; i < operands.size(); ++i) expression += "(?=" + operands[i] + ")";
    expression += operands.front();
    return negated ? "(?:(?!" + expression + ")(?s:.))" : "(?:" + expression + ")";
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where the last thing that can be repeated begins in out_
  std::vector<std::size_t> groups_;  // where the open groups begin in out_
  std::string error_;
};

}  // namespace

Expected<std::string> to_pcre2(std::string_view oniguruma_pattern) {
  return Translator(oniguruma_pattern).run();
}

}  // namespace slime::text
