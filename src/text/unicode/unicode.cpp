#include "text/unicode/unicode.h"

#include <algorithm>
#include <cstring>

#include "text/unicode/tables.h"

namespace slime::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What the bytes at the start of a text are. `length` is that of the character, or of the maximal
/// prefix of one.
struct Prefix {
  enum class Kind { kCharacter, kIncomplete, kInvalid } kind;
  std::size_t length;
};

/// Table 3-7 of the Unicode standard (well-formed UTF-8 byte sequences).
Prefix classify(std::string_view bytes) {
  const auto at = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return {Prefix::Kind::kCharacter, 1};
  if (first < 0xC2 || first > 0xF4) return {Prefix::Kind::kInvalid, 1};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Prefix::Kind::kIncomplete, i};
    const unsigned low = i == 1 ? lowest : 0x80, high = i == 1 ? highest : 0xBF;
    if (at(i) < low || at(i) > high) return {Prefix::Kind::kInvalid, i};
  }
  return {Prefix::Kind::kCharacter, length};
}

/// The number of leading ASCII bytes, eight at a time.
std::size_t ascii_prefix(std::string_view bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i;
}

}  // namespace

const CodePointTable& CodePointTable::instance() {
  static const CodePointTable table;
  return table;
}

CodePointTable::CodePointTable() {
  for (std::size_t i = 0; i < kPropertyRuns.size(); ++i) {
    const std::size_t end =
        i + 1 < kPropertyRuns.size() ? kPropertyRuns[i + 1].first : bits_.size();
    std::fill(bits_.begin() + kPropertyRuns[i].first,
              bits_.begin() + static_cast<std::ptrdiff_t>(end), kPropertyRuns[i].properties);
  }
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_valid_utf8(std::string_view text) {
  for (;;) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const Prefix prefix = classify(text);
    if (prefix.kind != Prefix::Kind::kCharacter) return false;
    text.remove_prefix(prefix.length);
  }
}

std::size_t append_decided(std::string_view bytes, std::string& out) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::string_view rest = bytes.substr(done);
    if (const std::size_t ascii = ascii_prefix(rest); ascii > 0) {
      out.append(rest.substr(0, ascii));
      done += ascii;
      continue;
    }
    const Prefix prefix = classify(rest);
    if (prefix.kind == Prefix::Kind::kIncomplete) break;
    out.append(prefix.kind == Prefix::Kind::kCharacter ? rest.substr(0, prefix.length)
                                                       : kReplacement);
    done += prefix.length;
  }
  return done;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_decided(bytes, out) < bytes.size()) out.append(kReplacement);
  return out;
}

}  // namespace slime::text
