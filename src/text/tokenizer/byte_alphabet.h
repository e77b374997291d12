#pragma once

/// GPT-2's printable stand-ins for bytes, in which byte-level vocabularies are spelled: "!" to "~"
/// and most of Latin-1 stand for themselves, the other 68 bytes are U+0100 to U+0143 in order. A
/// space is U+0120.

#include <optional>
#include <string>
#include <string_view>

namespace slime::text {

/// Appends the stand-in of each byte.
void append_spelling(std::string_view bytes, std::string& out);

/// The bytes that a token spells, or nothing when a character of it is no stand-in. `token` is
/// valid UTF-8.
std::optional<std::string> spelled_bytes(std::string_view token);

}  // namespace slime::text
