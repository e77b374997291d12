#pragma once

/// Translation of Oniguruma's regular expressions, in which tokenizer files are written, to PCRE2's, which we
/// run.
///
/// The two mostly agree. Translated here: \s and \w (PCRE2's \s also matches U+180E), \h (a hex
/// digit, not a blank), \uHHHH, (?m) (the dot matches newlines), {n,m}+ (repetition of a
/// repetition, not possessive), and character classes that contain classes or intersections:
/// [\p{L}&&[^\p{Han}]] becomes (?:(?=[^\p{Han}])[\p{L}]). Anything else goes through as it is; what
/// PCRE2 does not know is an error when it compiles.

#include <string>
#include <string_view>

#include "core/expected.h"

namespace slime::text {

/// Fails on an unterminated class, nesting above 16 levels, or the PCRE2 verbs "(*...)" that
/// Oniguruma does not have.
Expected<std::string> to_pcre2(std::string_view oniguruma_pattern);

}  // namespace slime::text
