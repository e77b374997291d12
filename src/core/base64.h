#pragma once

/// Bytes as text, four characters for three of them (RFC 4648, section 4).

#include <optional>
#include <string>
#include <string_view>

namespace slime {

std::string to_base64(std::string_view bytes);
/// Nothing for a text that is no base64, which is a multiple of four characters.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace slime
