#pragma once

/// Reader of regular expressions: the common part of Python's and ECMAScript's dialects.
///
///   . [a-z] [^a-z] \d \w \s \D \W \S   one character; \d \w are ASCII
///   a|b  (a)  (?:a)  (?<name>a)  (?P<name>a)
///   * + ? {3} {3,} {3,5}, lazy or not   which makes no difference
///   ^ $ \A \Z   at the ends of the text or of an alternative
///   \t \n \r \f \v \x41 \u0041 \u{1f680} \cA \. and other marks
///
/// Back references, look-around, word boundaries, \p, flags and possessive counts are refused.

#include <string>
#include <string_view>

#include "text/grammar/grammar_limits.h"
#include "text/grammar/pattern.h"

namespace slime::text {

/// Throws ConfigError that begins with `where` and names the position, counted in characters from 1.
TextPattern read_regex(std::string_view source, const std::string& where,
                       const GrammarLimits& limits);

/// The same without anchors, of the whole text (anchor_whole).
TextPattern read_whole_regex(std::string_view source, const std::string& where,
                             const GrammarLimits& limits, bool is_free_end = false);

}  // namespace slime::text
