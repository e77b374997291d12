#include "text/grammar/code_points.h"

#include "text/unicode/unicode.h"

namespace slime::text {

std::optional<std::u32string> code_points(std::string_view utf8) {
  if (!is_valid_utf8(utf8)) return std::nullopt;
  std::u32string characters;
  characters.reserve(utf8.size());
  for (std::size_t at = 0; at < utf8.size();) {
    const DecodedChar character = decode_char(utf8.data() + at);
    characters.push_back(character.code_point);
    at += character.length;
  }
  return characters;
}

}  // namespace slime::text
