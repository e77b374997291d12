#include "text/grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

using PatternKind = TextPattern::Kind;

TextPattern of_kind(PatternKind kind, std::vector<TextPattern> parts) {
  TextPattern pattern;
  pattern.kind = kind;
  pattern.parts = std::move(parts);
  return pattern;
}

bool has_anchor(const TextPattern& pattern) {
  if (pattern.kind == PatternKind::kBegin || pattern.kind == PatternKind::kEnd) return true;
  for (const TextPattern& part : pattern.parts) {
    if (has_anchor(part)) return true;
  }
  return false;
}

bool is_anchor(const TextPattern& pattern, PatternKind kind) { return pattern.kind == kind; }

/// Takes the anchors away that stand at one edge of the text; puts `free` there where none stood.
void strip_edge(TextPattern& pattern, PatternKind anchor, bool is_free_end) {
  const bool at_begin = anchor == PatternKind::kBegin;
  if (pattern.kind == PatternKind::kChoice) {
    for (TextPattern& part : pattern.parts) strip_edge(part, anchor, is_free_end);
    return;
  }
  if (is_anchor(pattern, anchor)) {
    pattern = of_kind(PatternKind::kSequence, {});
    return;
  }
  if (pattern.kind == PatternKind::kSequence && !pattern.parts.empty()) {
    auto& parts = pattern.parts;
    TextPattern& edge = at_begin ? parts.front() : parts.back();
    if (is_anchor(edge, anchor)) {
      do {
        parts.erase(at_begin ? parts.begin() : parts.end() - 1);
      } while (!parts.empty() && is_anchor(at_begin ? parts.front() : parts.back(), anchor));
      return;
    }
    // In a group, which an anchor of the other edge may stand before: ^(a|b$).
    if (edge.kind == PatternKind::kChoice || edge.kind == PatternKind::kSequence) {
      strip_edge(edge, anchor, is_free_end);
      return;
    }
  }
  if (!is_free_end) return;
  std::vector<TextPattern> parts;
  if (at_begin) parts.push_back(any_line_pattern());
  parts.push_back(std::move(pattern));
  if (!at_begin) parts.push_back(any_line_pattern());
  pattern = of_kind(PatternKind::kSequence, std::move(parts));
}

CharSet one(uint32_t character) { return {{character, character}}; }

/// A set's characters, in JSON's form.
TextPattern json_set(const CharSet& set) {
  static const CharSet kEscaped = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
  std::vector<TextPattern> forms;
  if (CharSet plain = set.intersection(kEscaped.complement()); !plain.empty())
    forms.push_back(set_pattern(std::move(plain)));
  const CharSet escaped = set.intersection(kEscaped);
  if (escaped.empty()) return choice_pattern(std::move(forms));
  static constexpr std::pair<uint32_t, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {8, 'b'}, {9, 't'}, {10, 'n'}, {12, 'f'}, {13, 'r'}};
  CharSet letters, low, high;  // \n; the last digit of \u000b; that of \u001f
  for (uint32_t character = 0; character < 0x80; ++character) {
    if (!escaped.contains(character)) continue;
    bool is_short = false;
    for (const auto& [meant, letter] : kShort) {
      if (meant != character) continue;
      letters.add({static_cast<uint8_t>(letter), static_cast<uint8_t>(letter)});
      is_short = true;
    }
    if (is_short) continue;
    const uint32_t digit = static_cast<uint8_t>("0123456789abcdef"[character & 15]);
    (character < 16 ? low : high).add({digit, digit});
  }
  if (!letters.empty())
    forms.push_back(sequence_pattern({set_pattern(one('\\')), set_pattern(std::move(letters))}));
  for (const auto& [digits, start] : {std::pair(&low, U"\\u000"), std::pair(&high, U"\\u001")}) {
    if (!digits->empty())
      forms.push_back(sequence_pattern({text_pattern(start), set_pattern(*digits)}));
  }
  return choice_pattern(std::move(forms));
}

/// Characters one by one up to a number: {0,200}, {5,}; not ?, * and +.
bool is_count(const TextPattern& repeat) {
  return repeat.max == TextPattern::kUnbounded ? repeat.min > 1 : repeat.max > 1;
}

void collect_characters(const TextPattern& pattern, CharSet& held) {
  held.add(pattern.set);
  for (const TextPattern& part : pattern.parts) collect_characters(part, held);
}

/// How a form of grammars spells the same tree.
class PatternWriter final {
 public:
  explicit PatternWriter(bool is_ebnf) : is_ebnf_(is_ebnf) {}

  /// `follow`: the character behind the text, or 0: nobody knows.
  std::string text(const TextPattern& pattern, uint32_t follow) {
    write(pattern, follow);
    return std::move(out_);
  }

 private:
  void write(const TextPattern& pattern, uint32_t follow) {
    switch (pattern.kind) {
      case PatternKind::kSet:
        return write_set(pattern.set);
      case PatternKind::kSequence:
        return write_sequence(pattern.parts, follow);
      case PatternKind::kChoice:
        for (std::size_t i = 0; i < pattern.parts.size(); ++i) {
          if (i > 0) out_ += is_ebnf_ ? " | " : "|";
          write(pattern.parts[i], follow);
        }
        return;
      case PatternKind::kRepeat:
        return write_repeat(pattern, follow);
      case PatternKind::kBegin:
      case PatternKind::kEnd:
        return;  // taken away before
    }
  }

  void write_sequence(const std::vector<TextPattern>& parts, uint32_t follow) {
    if (parts.empty()) out_ += is_ebnf_ ? "\"\"" : "(?:)";
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && is_ebnf_) out_ += ' ';
      const uint32_t next = i + 1 < parts.size() ? only_character(parts[i + 1]) : follow;
      if (parts[i].kind == PatternKind::kChoice)
        write_group(parts[i], next);
      else
        write(parts[i], next);
    }
  }

  /// 0: it may begin with several, or with none.
  static uint32_t only_character(const TextPattern& pattern) {
    const bool is_one = pattern.kind == PatternKind::kSet && pattern.set.size() == 1;
    return is_one ? pattern.set.ranges().front().first : 0;
  }

  void write_group(const TextPattern& pattern, uint32_t follow) {
    out_ += is_ebnf_ ? "(" : "(?:";
    write(pattern, follow);
    out_ += ')';
  }

  void write_repeat(const TextPattern& pattern, uint32_t follow) {
    const TextPattern& part = pattern.parts.front();
    const int64_t min = pattern.min, max = pattern.max;
    const bool is_counted = is_ebnf_ && part.kind == PatternKind::kSet && is_count(pattern) &&
                            follow != 0 && follow < 0x80 && !part.set.contains(follow);
    if (is_counted)
      write_left_out(part.set);
    else if (part.kind == PatternKind::kSet)
      write_set(part.set);
    else
      write_group(part, 0);
    if (min == 0 && max == 1)
      out_ += '?';
    else if (min == 0 && max == TextPattern::kUnbounded)
      out_ += '*';
    else if (min == 1 && max == TextPattern::kUnbounded)
      out_ += '+';
    else if (max == TextPattern::kUnbounded)
      out_ += fmt::format("{{{},}}", min);
    else
      out_ += fmt::format("{{{},{}}}", min, max);
  }

  /// The class by the characters that it does not have. Those that are none, surrogates, are among them.
  void write_left_out(const CharSet& set) {
    constexpr uint32_t kLast = 0x10ffff;
    std::vector<CharRange> left_out;
    uint32_t next = 0;
    for (const CharRange& range : set.ranges()) {
      if (range.first > next) left_out.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= kLast) left_out.push_back({next, kLast});
    out_ += "[^";
    for (const CharRange& range : left_out) {
      write_character(range.first);
      if (range.last > range.first) {
        out_ += '-';
        write_character(range.last);
      }
    }
    out_ += ']';
  }

  void write_set(const CharSet& set) {
    const auto& ranges = set.ranges();
    if (ranges.size() == 1 && ranges[0].first == ranges[0].last && ranges[0].first != 0) {
      if (is_ebnf_) out_ += '"';
      write_character(ranges[0].first);
      if (is_ebnf_) out_ += '"';
      return;
    }
    // Escaped or not, a ^ that stands first would be taken for the sign of a complement.
    out_ += '[';
    bool has_caret = false;
    for (CharRange range : ranges) {
      if (range.first == '^') {
        has_caret = true;
        if (range.first++ == range.last) continue;
      }
      write_character(range.first);
      if (range.last > range.first) {
        if (range.last > range.first + 1) out_ += '-';
        write_character(range.last);
      }
    }
    if (has_caret) write_character('^');
    out_ += ']';
  }

  void write_character(uint32_t character) {
    if (character < 0x80 && std::isalnum(static_cast<int>(character))) {
      out_ += static_cast<char>(character);
    } else if (!is_ebnf_ && character >= 0x80) {
      append_utf8(character, out_);
    } else if (character <= 0xffff) {
      out_ += fmt::format("\\u{:04x}", character);
    } else {
      out_ += fmt::format("\\U{:08x}", character);
    }
  }

  bool is_ebnf_;
  std::string out_;
};

}  // namespace

TextPattern set_pattern(CharSet set) {
  TextPattern pattern;
  pattern.kind = PatternKind::kSet;
  pattern.set = std::move(set);
  return pattern;
}

TextPattern text_pattern(std::u32string_view text) {
  std::vector<TextPattern> parts;
  for (const char32_t character : text) parts.push_back(set_pattern(one(character)));
  return sequence_pattern(std::move(parts));
}

TextPattern sequence_pattern(std::vector<TextPattern> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return of_kind(PatternKind::kSequence, std::move(parts));
}

TextPattern choice_pattern(std::vector<TextPattern> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return of_kind(PatternKind::kChoice, std::move(parts));
}

TextPattern repeat_pattern(TextPattern part, int64_t min, int64_t max) {
  constexpr int64_t kMany = TextPattern::kUnbounded;
  if (part.kind == PatternKind::kRepeat && part.min <= 1 && max != 0) {
    // (a*)* and its like are a*: said in one way, a text is followed in a time that is linear in its length.
    const bool is_star = part.max == kMany && (part.min == 0 || min == 0);
    const bool is_option = part.max == 1 && part.min == 0;
    if (is_star || (part.max == kMany && min > 0) || is_option) {
      if (is_star || is_option) min = 0;
      if (part.max == kMany) max = kMany;
      TextPattern inner = part.parts.front();
      return repeat_pattern(std::move(inner), min, max);
    }
  }
  std::vector<TextPattern> parts;
  parts.push_back(std::move(part));
  TextPattern pattern = of_kind(PatternKind::kRepeat, std::move(parts));
  pattern.min = min;
  pattern.max = max;
  return pattern;
}

TextPattern any_line_pattern() {
  return repeat_pattern(set_pattern(one('\n').complement()), 0, TextPattern::kUnbounded);
}

bool anchor_whole(TextPattern& pattern, bool is_free_end) {
  strip_edge(pattern, PatternKind::kBegin, is_free_end);
  strip_edge(pattern, PatternKind::kEnd, is_free_end);
  return !has_anchor(pattern);
}

TextPattern json_form(const TextPattern& pattern) {
  if (pattern.kind == PatternKind::kSet) return json_set(pattern.set);
  TextPattern form = pattern;
  for (TextPattern& part : form.parts) part = json_form(part);
  return form;
}

std::string ebnf_text(const TextPattern& pattern, uint32_t follow) {
  return PatternWriter(true).text(pattern, follow);
}
std::string regex_text(const TextPattern& pattern) { return PatternWriter(false).text(pattern, 0); }

std::optional<char> character_outside(const TextPattern& pattern) {
  CharSet held;
  collect_characters(pattern, held);
  for (uint32_t character = 1; character < 0x80; ++character)
    if (!held.contains(character)) return static_cast<char>(character);
  return std::nullopt;
}

bool ends_in_count(const TextPattern& pattern) {
  switch (pattern.kind) {
    case PatternKind::kRepeat:
      return pattern.parts.front().kind == PatternKind::kSet && is_count(pattern);
    case PatternKind::kSequence:
      return !pattern.parts.empty() && ends_in_count(pattern.parts.back());
    case PatternKind::kChoice:
      return std::ranges::any_of(pattern.parts, ends_in_count);
    default:
      return false;
  }
}

std::string json_string_regex(const TextPattern& pattern) {
  // The engine has two readers of patterns in JSON. The one for plain ASCII takes quotes and backslashes out
  // of every class, escaped forms too; a character beyond ASCII leads to the other.
  constexpr std::string_view kNoneOfThese = "\xc3\xa9{0}";
  std::string text = regex_text(json_form(pattern));
  const bool is_ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  return is_ascii ? fmt::format("{}(?:{})", kNoneOfThese, text) : text;
}

}  // namespace slime::text
