#include "text/tokenizer/word_splitter.h"

#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

// The expressions. Names are of the first models that used them.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100kPattern =  // Llama 3, GLM 4
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =  // Qwen 1 to 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =  // GPT-OSS
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =  // Mistral Nemo and later
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek V3 and R1 chain three.
constexpr std::string_view kDeepSeekNumbers = R"(\p{N}{1,3})";
constexpr std::string_view kDeepSeekCjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kDeepSeekWords =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

constexpr uint32_t kUpperish =
    bit(Category::kLu) | bit(Category::kLt) | bit(Category::kLm) | bit(Category::kLo) | kMarks;
constexpr uint32_t kLowerish =
    bit(Category::kLl) | bit(Category::kLm) | bit(Category::kLo) | kMarks;

/// Reads characters of one text by position. A position at the end has length 0 and no properties
/// but "unassigned".
class Cursor {
 public:
  explicit Cursor(std::string_view text)
      : text_(text.data()), size_(text.size()), table_(CodePointTable::instance()) {}

  struct Char {
    char32_t code_point;
    uint32_t length;
    CodePointProperties properties;
    bool in(uint32_t categories) const { return properties.in(categories); }
    bool is_newline() const { return code_point == '\r' || code_point == '\n'; }
    bool is_space() const { return properties.is_space(); }
  };

  std::size_t size() const { return size_; }
  Char at(std::size_t i) const {
    if (i >= size_) return {0, 0, CodePointProperties(0)};
    const DecodedChar c = decode_char(text_ + i);
    return {c.code_point, c.length, table_[c.code_point]};
  }
  /// The end of the run that begins at `i` of characters for which `belongs` holds, at most `limit`
  /// of them.
  template <typename Belongs>
  std::size_t run(std::size_t i, Belongs belongs, int limit = -1) const {
    while (i < size_ && limit-- != 0) {
      const Char c = at(i);
      if (!belongs(c)) break;
      i += c.length;
    }
    return i;
  }
  std::size_t run_in(std::size_t i, uint32_t categories, int limit = -1) const {
    return run(
        i, [categories](const Char& c) { return c.in(categories); }, limit);
  }

 private:
  const char* text_;
  std::size_t size_;
  const CodePointTable& table_;
};

using Char = Cursor::Char;
/// Matchers return the end of a match at i, which is above i, or this.
constexpr std::size_t kNoMatch = 0;

/// 's|'t|'re|'ve|'m|'ll|'d, with ignore_case under Unicode folding: U+017F is an s.
template <bool ignore_case>
std::size_t contraction(const Cursor& text, std::size_t i) {
  if (text.at(i).code_point != '\'') return kNoMatch;
  const auto letter = [&](std::size_t at) -> char32_t {
    const char32_t c = text.at(at).code_point;
    if (!ignore_case) return c;
    return c == 0x17F ? U's' : c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  };
  const char32_t first = letter(i + 1);
  switch (first) {
    case 's':
      return i + 1 + text.at(i + 1).length;
    case 't':
    case 'm':
    case 'd':
      return i + 2;
    case 'r':
    case 'v':
      return letter(i + 2) == 'e' ? i + 3 : kNoMatch;
    case 'l':
      return letter(i + 2) == 'l' ? i + 3 : kNoMatch;
    default:
      return kNoMatch;
  }
}

/// \s*[\r\n]+|\s+(?!\S)|\s+ with has_newlines, otherwise the last two.
template <bool has_newlines>
std::size_t spaces(const Cursor& text, std::size_t i) {
  std::size_t end = i, last = i, newline_end = kNoMatch;  // `last` begins the run's last character
  while (end < text.size()) {
    const Char c = text.at(end);
    if (!c.is_space()) break;
    last = end;
    end += c.length;
    if (c.is_newline()) newline_end = end;
  }
  if (has_newlines && newline_end != kNoMatch) return newline_end;
  if (end == i) return kNoMatch;
  return end == text.size() || last == i ? end : last;
}

bool is_other(const Char& c) { return !c.is_space() && !c.in(kLetters | kNumbers); }

/// " ?[^\s\p{L}\p{N}]+" and then the newlines (and slashes) that follow.
template <bool with_newlines, bool with_slash>
std::size_t others(const Cursor& text, std::size_t i) {
  const std::size_t begin = text.at(i).code_point == ' ' ? i + 1 : i;
  const std::size_t end = text.run(begin, is_other);
  if (end == begin) return kNoMatch;
  if (!with_newlines) return end;
  return text.run(
      end, [](const Char& c) { return c.is_newline() || (with_slash && c.code_point == '/'); });
}

std::size_t match_gpt2(const Cursor& text, std::size_t i) {
  if (const std::size_t end = contraction<false>(text, i)) return end;
  const std::size_t begin = text.at(i).code_point == ' ' ? i + 1 : i;
  if (const std::size_t end = text.run_in(begin, kLetters); end > begin) return end;
  if (const std::size_t end = text.run_in(begin, kNumbers); end > begin) return end;
  if (const std::size_t end = others<false, false>(text, i)) return end;
  return spaces<false>(text, i);
}

template <int max_digits>
std::size_t match_cl100k(const Cursor& text, std::size_t i) {
  const Char c = text.at(i);
  if (c.in(kLetters)) return text.run_in(i + c.length, kLetters);
  if (c.in(kNumbers)) return text.run_in(i, kNumbers, max_digits);
  if (const std::size_t end = contraction<true>(text, i)) return end;
  if (!c.is_newline()) {
    const std::size_t begin = i + c.length, end = text.run_in(begin, kLetters);
    if (end > begin) return end;
  }
  if (const std::size_t end = others<true, false>(text, i)) return end;
  return spaces<true>(text, i);
}

/// A word of upper case and then lower case: U*L+ or else U+L*, where U and L share caseless
/// letters and marks. Returns kNoMatch or its end.
template <bool without_han>
std::size_t cased_word(const Cursor& text, std::size_t begin) {
  const auto upper = [](const Char& c) {
    return c.in(kUpperish) && !(without_han && c.properties.is_han());
  };
  const auto lower = [](const Char& c) {
    return c.in(kLowerish) && !(without_han && c.properties.is_han());
  };
  std::size_t upper_end = begin,
              shared_end = kNoMatch;  // the end of the last character of U that is also in L
  while (upper_end < text.size()) {
    const Char c = text.at(upper_end);
    if (!upper(c)) break;
    upper_end += c.length;
    if (lower(c)) shared_end = upper_end;
  }
  if (const std::size_t end = text.run(upper_end, lower); end > upper_end) return end;
  return shared_end;  // L+ is the one character that U* gives back
}

template <bool without_han, bool has_contraction>
std::size_t cased_word_with_affixes(const Cursor& text, std::size_t i) {
  const auto upper = [](const Char& c) {
    return c.in(kUpperish) && !(without_han && c.properties.is_han());
  };
  const Char c = text.at(i);
  const bool may_be_prefix = !c.is_newline() && !c.in(kLetters | kNumbers);
  const std::size_t after = i + c.length;
  std::size_t end = may_be_prefix ? cased_word<without_han>(text, after) : kNoMatch;
  if (end == kNoMatch) end = cased_word<without_han>(text, i);
  if (end == kNoMatch && may_be_prefix) {  // second alternative: upper case alone
    const std::size_t upper_end = text.run(after, upper);
    if (upper_end > after) end = upper_end;
  }
  if (end == kNoMatch) {
    const std::size_t upper_end = text.run(i, upper);
    if (upper_end > i) end = upper_end;
  }
  if (!has_contraction || end == kNoMatch) return end;
  const std::size_t with_contraction = contraction<true>(text, end);
  return with_contraction == kNoMatch ? end : with_contraction;
}

template <bool without_han, bool has_contraction, int max_digits, bool with_slash>
std::size_t match_cased(const Cursor& text, std::size_t i) {
  if (without_han) {
    const std::size_t end = text.run(i, [](const Char& c) { return c.properties.is_han(); });
    if (end > i) return end;
  }
  if (const std::size_t end = cased_word_with_affixes<without_han, has_contraction>(text, i))
    return end;
  if (const std::size_t end = text.run_in(i, kNumbers, max_digits); end > i) return end;
  if (const std::size_t end = others<true, with_slash>(text, i)) return end;
  return spaces<true>(text, i);
}

std::size_t match_deepseek_numbers(const Cursor& text, std::size_t i) {
  const std::size_t end = text.run_in(i, kNumbers, 3);
  return end > i ? end : kNoMatch;
}

std::size_t match_deepseek_cjk(const Cursor& text, std::size_t i) {
  const std::size_t end = text.run(i, [](const Char& c) {
    return (c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) ||
           (c.code_point >= 0x3040 && c.code_point <= 0x30FF);
  });
  return end > i ? end : kNoMatch;
}

std::size_t match_deepseek_words(const Cursor& text, std::size_t i) {
  const auto is_ascii_letter = [](const Char& c) {
    return (c.code_point | 32) >= 'a' && (c.code_point | 32) <= 'z';
  };
  const Char c = text.at(i);
  // All of ASCII that is printable and neither space, letter nor digit.
  if (c.code_point > ' ' && c.code_point < 0x7F && !c.in(kNumbers) && !is_ascii_letter(c)) {
    const std::size_t end = text.run(i + 1, is_ascii_letter);
    if (end > i + 1) return end;
  }
  if (!c.is_newline() && !c.in(kLetters | kPunctuation | kSymbols)) {
    const std::size_t begin = i + c.length, end = text.run_in(begin, kLetters | kMarks);
    if (end > begin) return end;
  }
  if (const std::size_t end = text.run_in(i, kLetters | kMarks); end > i) return end;
  const std::size_t begin = c.code_point == ' ' ? i + 1 : i;
  if (const std::size_t end = text.run_in(begin, kPunctuation | kSymbols); end > begin) {
    return text.run(end, [](const Char& next) { return next.is_newline(); });
  }
  return spaces<true>(text, i);
}

template <std::size_t (*match)(const Cursor&, std::size_t)>
void find_all(std::string_view text, std::vector<Range>& matches) {
  const Cursor cursor(text);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = match(cursor, i);
    if (end == kNoMatch) {
      i += cursor.at(i).length;
      continue;
    }
    matches.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(end)});
    i = end;
  }
}

}  // namespace

const std::string_view WordSplitter::kCl100k = kCl100kPattern;
const std::string_view WordSplitter::kQwen2 = kQwen2Pattern;
const std::string_view WordSplitter::kKimi = kKimiPattern;

const std::vector<WordSplitter>& WordSplitter::all() {
  static const std::vector<WordSplitter> splitters = {
      {kGpt2, slime::text::find_all<match_gpt2>},
      {kCl100kPattern, slime::text::find_all<match_cl100k<3>>},
      {kQwen2Pattern, slime::text::find_all<match_cl100k<1>>},
      {kO200k, slime::text::find_all<match_cased<false, true, 3, true>>},
      {kTekken, slime::text::find_all<match_cased<false, false, 1, true>>},
      {kKimiPattern, slime::text::find_all<match_cased<true, true, 3, false>>},
      {kDeepSeekNumbers, slime::text::find_all<match_deepseek_numbers>},
      {kDeepSeekCjk, slime::text::find_all<match_deepseek_cjk>},
      {kDeepSeekWords, slime::text::find_all<match_deepseek_words>},
  };
  return splitters;
}

const WordSplitter* WordSplitter::find(std::string_view pattern) {
  for (const WordSplitter& splitter : all()) {
    if (splitter.pattern_ == pattern) return &splitter;
  }
  return nullptr;
}

const WordSplitter& WordSplitter::gpt2() { return all().front(); }

std::vector<std::string_view> WordSplitter::known_patterns() {
  std::vector<std::string_view> patterns;
  for (const WordSplitter& splitter : all()) patterns.push_back(splitter.pattern_);
  return patterns;
}

}  // namespace slime::text
