#pragma once

/// Pattern of a text: what a regular expression means, as a tree.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/char_set.h"

namespace slime::text {

struct TextPattern {
  enum class Kind : uint8_t {
    kSet,       // one character of `set`
    kSequence,  // the parts one after another; none: the empty text
    kChoice,    // one of the parts
    kRepeat,    // the one part, min to max times
    kBegin,     // ^, where the text begins
    kEnd,       // $
  };
  static constexpr int64_t kUnbounded = -1;

  Kind kind = Kind::kSequence;
  CharSet set = {};
  int64_t min = 0;
  int64_t max = kUnbounded;  // of kRepeat
  std::vector<TextPattern> parts = {};
};

TextPattern set_pattern(CharSet set);
TextPattern text_pattern(std::u32string_view text);
TextPattern sequence_pattern(std::vector<TextPattern> parts);
TextPattern choice_pattern(std::vector<TextPattern> parts);
TextPattern repeat_pattern(TextPattern part, int64_t min, int64_t max);
/// Any characters but line breaks, as `.*` says it.
TextPattern any_line_pattern();

/// The same of the whole text, without anchors. An end of the text that no anchor binds is bound too, or
/// free where `is_free_end`: "^x_" is then "x_" and any characters. False: an anchor stands inside.
bool anchor_whole(TextPattern& pattern, bool is_free_end);

/// The texts of JSON between quotes that mean a text of the pattern, which has no anchors. Each
/// character in one form: escaped if it must be.
TextPattern json_form(const TextPattern& pattern);

/// As the right side of a rule of an EBNF. `follow`: the character behind it, or 0. A counted class in
/// front of a character that it does not have is written as what it leaves out, which the engine counts.
std::string ebnf_text(const TextPattern& pattern, uint32_t follow = 0);
/// An ASCII character that no text of the pattern holds.
std::optional<char> character_outside(const TextPattern& pattern);
/// A text of the pattern may end in a counted class.
bool ends_in_count(const TextPattern& pattern);
/// As a regular expression that the engine reads.
std::string regex_text(const TextPattern& pattern);
/// The same of the pattern's form in JSON, as the engine reads it between quotes.
std::string json_string_regex(const TextPattern& pattern);

}  // namespace slime::text
