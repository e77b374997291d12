#pragma once

/// Characters of a source text, one by one, for readers that tell positions.

#include <optional>
#include <string>
#include <string_view>

namespace slime::text {

/// Nothing for bytes that are not UTF-8.
std::optional<std::u32string> code_points(std::string_view utf8);

}  // namespace slime::text
