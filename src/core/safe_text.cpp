#include "core/safe_text.h"

#include <fmt/format.h>

namespace slime {
namespace {

/// Length of the UTF-8 character that `text` begins with; 0: it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // A control character in more bytes than it needs.
  const bool is_overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  return is_overlong ? 0 : length;
}

/// U+0080 to U+009F.
bool is_c1(std::string_view character) {
  return character.size() == 2 && character[0] == '\xc2' &&
         static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

std::string safe_text(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    const auto last = static_cast<unsigned char>(character.back());
    const bool is_c0 = length == 1 && (last < 0x20 || last == 0x7f) && last != '\n' && last != '\t';
    if (length == 0 || is_c0 || is_c1(character)) {
      safe += fmt::format("\\x{:02x}", last);
    } else {
      safe += character;
    }
    text.remove_prefix(character.size());
  }
  return safe;
}

std::string safe_json(std::string json) {
  constexpr std::string_view kFirstBytes = "\xc2\x7f";
  std::size_t at = json.find_first_of(kFirstBytes);
  for (; at != std::string::npos; at = json.find_first_of(kFirstBytes, at + 1)) {
    const std::string_view rest = std::string_view(json).substr(at, json[at] == '\x7f' ? 1 : 2);
    if (rest != "\x7f" && !is_c1(rest)) continue;
    json.replace(at, rest.size(),
                 fmt::format("\\u00{:02x}", static_cast<unsigned char>(rest.back())));
  }
  return json;
}

}  // namespace slime
