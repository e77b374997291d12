#pragma once

/// Unicode normalization forms (Unicode Standard Annex 15) and lower case, with the tables of
/// text/unicode/tables.h.

#include <string>
#include <string_view>

namespace slime::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` is valid UTF-8.
std::string normalize(std::string_view text, NormalForm form);

/// True when every character of `text` stays itself under kNfc whatever stands beside it; then
/// normalize() would return `text`. False does not mean that it would not.
bool is_plainly_nfc(std::string_view text);

/// Each character's full lower case mapping, without context rules.
std::string lowercase(std::string_view text);

}  // namespace slime::text
