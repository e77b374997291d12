#include "text/unicode/normalize.h"

#include <algorithm>
#include <bitset>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/unicode/tables.h"
#include "text/unicode/unicode.h"

namespace slime::text {
namespace {

// Hangul syllables decompose and compose by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28;
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

using Mapping = std::unordered_map<char32_t, std::span<const char32_t>>;

Mapping read_rows(std::span<const char32_t> rows) {
  Mapping mapping;
  for (std::size_t i = 0; i < rows.size(); i += 2 + rows[i + 1])
    mapping[rows[i]] = rows.subspan(i + 2, rows[i + 1]);
  return mapping;
}

struct Tables {
  Mapping canonical = read_rows(kCanonicalMappings);
  Mapping compatible = read_rows(kCompatibilityMappings);
  Mapping lowercase = read_rows(kLowercaseMappings);
  std::unordered_map<char32_t, uint8_t> classes;
  std::unordered_map<uint64_t, char32_t> compositions;
  /// Neither reordered nor the second part of a composition, and its own decomposition composes
  /// back to it.
  std::bitset<0x110000> stable_in_nfc;

  Tables() {
    stable_in_nfc.set();
    for (const auto& row : canonical) stable_in_nfc.reset(row.first);
    for (const Composition& row : kCompositions) {
      compositions[uint64_t{row.first} << 32 | row.second] = row.composed;
      stable_in_nfc.set(row.composed);
    }
    for (const Composition& row : kCompositions) stable_in_nfc.reset(row.second);
    for (const CombiningClass& row : kCombiningClasses) {
      classes[row.code_point] = row.value;
      stable_in_nfc.reset(row.code_point);
    }
    for (char32_t c = kVowels; c < kVowels + kNumVowels; ++c) stable_in_nfc.reset(c);
    for (char32_t c = kTrails + 1; c < kTrails + kNumTrails; ++c) stable_in_nfc.reset(c);
  }
  uint8_t class_of(char32_t c) const {
    if (c < 0x300) return 0;
    const auto found = classes.find(c);
    return found == classes.end() ? 0 : found->second;
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  if (c < 0x80) {
    out += c;
    return;
  }
  if (const char32_t index = c - kSyllables; c >= kSyllables && index < kNumSyllables) {
    out += kLeads + index / (kNumVowels * kNumTrails);
    out += kVowels + index % (kNumVowels * kNumTrails) / kNumTrails;
    if (index % kNumTrails != 0) out += kTrails + index % kNumTrails;
    return;
  }
  if (compatible) {
    if (const auto found = tables().compatible.find(c); found != tables().compatible.end()) {
      out.append(found->second.begin(), found->second.end());
      return;
    }
  }
  if (const auto found = tables().canonical.find(c); found != tables().canonical.end()) {
    out.append(found->second.begin(), found->second.end());
    return;
  }
  out += c;
}

/// Stable sort by combining class inside every run of marks.
void reorder_marks(std::u32string& text) {
  std::vector<std::pair<uint8_t, char32_t>> marks;
  for (std::size_t begin = 0; begin < text.size();) {
    if (tables().class_of(text[begin]) == 0) {
      ++begin;
      continue;
    }
    marks.clear();
    std::size_t end = begin;
    for (uint8_t value; end < text.size() && (value = tables().class_of(text[end])) != 0; ++end) {
      marks.emplace_back(value, text[end]);
    }
    std::stable_sort(marks.begin(), marks.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < marks.size(); ++i) text[begin + i] = marks[i].second;
    begin = end;
  }
}

/// The character that `first` and `second` compose to, or 0.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kNumLeads && second >= kVowels &&
      second < kVowels + kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + (second - kVowels)) * kNumTrails;
  }
  if (first >= kSyllables && first < kSyllables + kNumSyllables &&
      (first - kSyllables) % kNumTrails == 0 && second > kTrails && second < kTrails + kNumTrails) {
    return first + (second - kTrails);
  }
  const auto found = tables().compositions.find(uint64_t{first} << 32 | second);
  return found == tables().compositions.end() ? 0 : found->second;
}

/// Canonical composition algorithm: a character joins the last starter unless something of its own
/// class or a starter stands between.
void compose(std::u32string& text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone, out = 0;
  int last_class = -1;  // of the character before, counted from the starter; -1 right after it
  for (const char32_t c : text) {
    const int value = tables().class_of(c);
    if (starter != kNone && last_class < value) {
      if (const char32_t joined = composed(text[starter], c); joined != 0) {
        text[starter] = joined;
        continue;
      }
    }
    text[out] = c;
    if (value == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = value;
    }
    ++out;
  }
  text.resize(out);
}

std::string to_utf8(const std::u32string& text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char32_t c : text) append_utf8(c, out);
  return out;
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::u32string decomposed;
  decomposed.reserve(text.size());
  for (const char* at = text.data(); at != text.data() + text.size();) {
    const DecodedChar c = decode_char(at);
    decompose(c.code_point, compatible, decomposed);
    at += c.length;
  }
  reorder_marks(decomposed);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose(decomposed);
  return to_utf8(decomposed);
}

bool is_plainly_nfc(std::string_view text) {
  for (const char* at = text.data(); at != text.data() + text.size();) {
    if (static_cast<unsigned char>(*at) < 0xCC) {  // U+0300, the first mark, is CC 80
      ++at;
      continue;
    }
    const DecodedChar c = decode_char(at);
    if (!tables().stable_in_nfc[c.code_point]) return false;
    at += c.length;
  }
  return true;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char* at = text.data(); at != text.data() + text.size();) {
    const DecodedChar c = decode_char(at);
    at += c.length;
    const auto found = tables().lowercase.find(c.code_point);
    if (found == tables().lowercase.end()) {
      append_utf8(c.code_point, out);
    } else {
      for (const char32_t mapped : found->second) append_utf8(mapped, out);
    }
  }
  return out;
}

}  // namespace slime::text
