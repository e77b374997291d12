#include "text/grammar/regex_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/grammar/code_points.h"

namespace slime::text {
namespace {

constexpr int kMostRegexGroups = 100;            // in one another
constexpr int64_t kLargestRegexCount = 1000000;  // one number of a count

CharSet digit_characters() { return {{'0', '9'}}; }
CharSet word_characters() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
/// ECMAScript's.
CharSet white_space() {
  return {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
          {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}

std::optional<CharSet> set_of_escape(char32_t letter) {
  switch (letter) {
    case 'd':
      return digit_characters();
    case 'D':
      return digit_characters().complement();
    case 'w':
      return word_characters();
    case 'W':
      return word_characters().complement();
    case 's':
      return white_space();
    case 'S':
      return white_space().complement();
    default:
      return std::nullopt;
  }
}

class RegexReader final {
 public:
  RegexReader(std::u32string source, const std::string& where, const GrammarLimits& limits)
      : source_(std::move(source)), where_(where), limits_(limits) {}

  TextPattern read() {
    TextPattern pattern = choice();
    if (!at_end()) fail("there is no group that this ) closes");
    return pattern;
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const { fail_at(at_, problem); }
  [[noreturn]] void fail_at(std::size_t at, std::string_view problem) const {
    throw ConfigError(fmt::format("{}, position {}: {}", where_, at + 1, problem));
  }

  bool at_end() const { return at_ == source_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : U'\0';
  }
  bool take(char32_t character) {
    if (at_end() || source_[at_] != character) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view text) {
    if (std::u32string_view(source_).substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  TextPattern choice() {
    std::vector<TextPattern> parts;
    do {
      parts.push_back(sequence());
    } while (take(U'|'));
    return choice_pattern(std::move(parts));
  }

  TextPattern sequence() {
    std::vector<TextPattern> parts;
    while (!at_end() && peek() != '|' && peek() != ')') parts.push_back(counted());
    return sequence_pattern(std::move(parts));
  }

  TextPattern counted() {
    const std::size_t begin = at_;
    TextPattern part = atom();
    const std::size_t mark = at_;
    int64_t min = 0, max = TextPattern::kUnbounded;
    if (take(U'+')) {
      min = 1;
    } else if (take(U'?')) {
      max = 1;
    } else if (take(U'{')) {
      count(mark, min, max);
    } else if (!take(U'*')) {
      return part;
    }
    if (part.kind == TextPattern::Kind::kBegin || part.kind == TextPattern::Kind::kEnd)
      fail_at(begin, "an anchor cannot be repeated");
    take(U'?');
    if (peek() == '+') fail("possessive counts are not supported");
    if (peek() == '*' || peek() == '?' || (peek() == '{' && !at_end()))
      fail("a count of a count; use a group");
    check_repetition(begin, part, std::max(min, max));
    return repeat_pattern(std::move(part), min, max);
  }

  void count(std::size_t mark, int64_t& min, int64_t& max) {
    const auto low = number();
    if (!low) fail_at(mark, "this { begins no count such as {3}, {3,} or {3,5}; a brace is \\{");
    min = max = *low;
    if (take(U',')) max = number().value_or(TextPattern::kUnbounded);
    if (!take(U'}'))
      fail_at(mark, "this { begins no count such as {3}, {3,} or {3,5}; a brace is \\{");
    if (max != TextPattern::kUnbounded && max < min)
      fail_at(mark, "the count's second number is smaller than its first");
  }

  std::optional<int64_t> number() {
    if (!is_digit(peek())) return std::nullopt;
    int64_t value = 0;
    while (is_digit(peek())) {
      value = value * 10 + static_cast<int64_t>(peek() - '0');
      if (value > kLargestRegexCount)
        fail(fmt::format("counts are at most {}", kLargestRegexCount));
      ++at_;
    }
    return value;
  }

  static bool is_digit(char32_t character) { return character >= '0' && character <= '9'; }

  /// Counts in counts, multiplied, are what a compiled grammar may have to tell apart.
  void check_repetition(std::size_t begin, const TextPattern& part, int64_t count) const {
    const int64_t product = std::max<int64_t>(count, 1) * product_of(part);
    if (product > limits_.repetition) {
      fail_at(begin,
              fmt::format("counts in counts are {} in all, at most {} are allowed; use * or +",
                          product, limits_.repetition));
    }
  }

  static int64_t product_of(const TextPattern& pattern) {
    int64_t product = 1;
    for (const TextPattern& part : pattern.parts) product = std::max(product, product_of(part));
    if (pattern.kind == TextPattern::Kind::kRepeat)
      product *= std::max<int64_t>({pattern.min, pattern.max, 1});
    return product;
  }

  TextPattern anchor(TextPattern::Kind kind) {
    TextPattern pattern;
    pattern.kind = kind;
    return pattern;
  }

  TextPattern atom() {
    const char32_t character = peek();
    switch (character) {
      case '(':
        return group();
      case '[':
        return set_pattern(bracketed());
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
      case '{':
        fail("a count of nothing");
      case '^':
        ++at_;
        return anchor(TextPattern::Kind::kBegin);
      case '$':
        ++at_;
        return anchor(TextPattern::Kind::kEnd);
      case '.':
        ++at_;
        return set_pattern(CharSet{{'\n', '\n'}}.complement());
      default:
        ++at_;
        return set_pattern({{character, character}});
    }
  }

  TextPattern group() {
    const std::size_t begin = at_++;
    if (take(U'?')) group_kind(begin);
    if (++depth_ > kMostRegexGroups)
      fail_at(begin, fmt::format("more than {} groups in one another", kMostRegexGroups));
    TextPattern pattern = choice();
    --depth_;
    if (!take(U')')) fail_at(begin, "this group is not closed");
    return pattern;
  }

  void group_kind(std::size_t begin) {
    if (take(U':')) return;
    if (peek() == '=' || peek() == '!') fail_at(begin, "lookahead is not supported");
    if (take(U"<=") || take(U"<!")) fail_at(begin, "lookbehind is not supported");
    if (take(U"P=")) fail_at(begin, "a backreference is not supported");
    if (take(U"P<") || take(U'<')) {
      const std::size_t name = at_;
      while (!at_end() && peek() != '>') ++at_;
      if (at_ == name || !take(U'>'))
        fail_at(begin, "the group's name is not closed: (?<name>...)");
      return;
    }
    fail_at(begin, "flags, comments, atomic and conditional groups are not supported");
  }

  CharSet bracketed() {
    const std::size_t begin = at_++;
    const bool is_complement = take(U'^');
    CharSet set;
    if (peek() == ']') fail("an empty class; a bracket in a class is \\]");
    while (!at_end() && peek() != ']') {
      if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '='))
        fail("POSIX classes are not supported; a bracket in a class is \\[");
      const std::size_t start = at_;
      const auto first = class_character(set);
      // A - is a range's if something stands on both sides.
      if (peek() != '-' || peek(1) == ']' || at_ + 1 >= source_.size()) {
        if (first) set.add({*first, *first});
        continue;
      }
      const std::size_t dash = at_++;
      CharSet other;
      const auto last = class_character(other);
      if (!first || !last) fail_at(dash, "a range between classes; a - in a class is \\-");
      if (*last < *first) fail_at(start, "the range's ends are in the wrong order");
      set.add({*first, *last});
    }
    if (!take(U']')) fail_at(begin, "this class is not closed");
    if (is_complement) set = set.complement();
    if (set.empty()) fail_at(begin, "no character is in this class");
    return set;
  }

  /// One character, or nothing after a class such as \d, which is added to `set`.
  std::optional<uint32_t> class_character(CharSet& set) {
    if (peek() != '\\') return source_[at_++];
    if (const auto known = set_of_escape(peek(1))) {
      at_ += 2;
      set.add(*known);
      return std::nullopt;
    }
    if (peek(1) == 'b') {
      at_ += 2;
      return 8;
    }
    return escaped_character();
  }

  TextPattern escape() {
    const char32_t letter = peek(1);
    if (const auto known = set_of_escape(letter)) {
      at_ += 2;
      return set_pattern(*known);
    }
    if (letter == 'A' || letter == 'Z' || letter == 'z') {
      at_ += 2;
      return anchor(letter == 'A' ? TextPattern::Kind::kBegin : TextPattern::Kind::kEnd);
    }
    if (letter == 'b' || letter == 'B') fail("a word boundary is not supported");
    if ((letter >= '1' && letter <= '9') || letter == 'k') fail("a backreference is not supported");
    const uint32_t character = escaped_character();
    return set_pattern({{character, character}});
  }

  uint32_t escaped_character() {
    const std::size_t begin = at_++;
    if (at_end()) fail_at(begin, "nothing follows this \\");
    const char32_t letter = source_[at_++];
    switch (letter) {
      case 't':
        return 9;
      case 'n':
        return 10;
      case 'v':
        return 11;
      case 'f':
        return 12;
      case 'r':
        return 13;
      case '0':
        if (is_digit(peek())) fail_at(begin, "octal escapes are not supported; use \\x");
        return 0;
      case 'x':
        return hexadecimal(begin, 2);
      case 'U':
        return hexadecimal(begin, 8);
      case 'u':
        return unicode(begin);
      case 'c':
        if (peek() >= 0x80 || !std::isalpha(static_cast<int>(peek())))
          fail_at(begin, "\\c wants a letter");
        return source_[at_++] % 32;
      case 'p':
      case 'P':
        fail_at(begin, fmt::format("\\{} is not supported: list the characters",
                                   static_cast<char>(letter)));
      default:
        if (letter < 0x80 && std::isalnum(static_cast<int>(letter)))
          fail_at(begin, fmt::format("\\{} is no escape", static_cast<char>(letter)));
        return letter;
    }
  }

  uint32_t hexadecimal(std::size_t begin, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      if (peek() >= 0x80 || !std::isxdigit(static_cast<int>(peek())))
        fail_at(begin, fmt::format("the escape wants {} hexadecimal digits", digits));
      value = value * 16 + hex_value(source_[at_++]);
    }
    return checked(begin, value);
  }

  static uint32_t hex_value(char32_t digit) {
    return is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10;
  }

  uint32_t unicode(std::size_t begin) {
    if (!take(U'{')) {
      uint32_t value = 0;
      for (int i = 0; i < 4; ++i) {
        if (peek() >= 0x80 || !std::isxdigit(static_cast<int>(peek())))
          fail_at(begin, "the escape wants 4 hexadecimal digits");
        value = value * 16 + hex_value(source_[at_++]);
      }
      // A pair of surrogates is one character.
      if (value >= 0xd800 && value < 0xdc00 && take(U"\\u")) {
        const uint32_t low = [&] {
          uint32_t half = 0;
          for (int i = 0; i < 4 && peek() < 0x80 && std::isxdigit(static_cast<int>(peek())); ++i)
            half = half * 16 + hex_value(source_[at_++]);
          return half;
        }();
        if (low < 0xdc00 || low > 0xdfff) fail_at(begin, "half of a pair of surrogates");
        return 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
      }
      return checked(begin, value);
    }
    uint32_t value = 0;
    int count = 0;
    for (; peek() < 0x80 && std::isxdigit(static_cast<int>(peek())) && count < 8; ++count)
      value = value * 16 + hex_value(source_[at_++]);
    if (count == 0 || count > 6 || !take(U'}'))
      fail_at(begin, "\\u{...} wants 1 to 6 hexadecimal digits");
    return checked(begin, value);
  }

  uint32_t checked(std::size_t begin, uint32_t character) const {
    if (character > 0x10ffff || (character >= 0xd800 && character <= 0xdfff))
      fail_at(begin, "the escape is no character");
    return character;
  }

  std::u32string source_;
  const std::string& where_;
  const GrammarLimits& limits_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

TextPattern read_regex(std::string_view source, const std::string& where,
                       const GrammarLimits& limits) {
  if (source.size() > limits.text_bytes) {
    throw ConfigError(fmt::format("{} has {} bytes, at most {} are allowed", where, source.size(),
                                  limits.text_bytes));
  }
  auto characters = code_points(source);
  if (!characters) throw ConfigError(fmt::format("{} is not UTF-8", where));
  return RegexReader(std::move(*characters), where, limits).read();
}

TextPattern read_whole_regex(std::string_view source, const std::string& where,
                             const GrammarLimits& limits, bool is_free_end) {
  TextPattern pattern = read_regex(source, where, limits);
  if (!anchor_whole(pattern, is_free_end))
    throw ConfigError(
        fmt::format("{}: an anchor inside of the expression is not supported; ^ may "
                    "begin it, or an alternative, and $ end it",
                    where));
  return pattern;
}

}  // namespace slime::text
