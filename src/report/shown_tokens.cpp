#include "report/shown_tokens.h"

#include "core/safe_text.h"

namespace slime::report {
namespace {

constexpr std::string_view kReset = "\033[0m";

std::string_view color_of(bool is_trained, bool is_even) {
  if (is_trained) return is_even ? "\033[32m" : "\033[1;32m";
  return is_even ? "" : "\033[2m";
}

/// How many bytes at the end of a text begin a character that goes on.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;  // the middle of a character
    const std::size_t length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string shown_tokens(std::span<const TokenId> ids, std::span<const uint8_t> mask,
                         const text::Tokenizer& tokenizer, bool has_color) {
  std::string shown, pending;  // bytes of a character that several tokens make
  bool is_open = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_trained = i < mask.size() && mask[i] != 0;
    if (!has_color && is_trained != is_open && pending.empty()) {
      shown += is_trained ? "[[" : "]]";
      is_open = is_trained;
    }
    pending += tokenizer.token_bytes(ids[i]);
    const std::size_t unfinished = i + 1 < ids.size() ? unfinished_bytes(pending) : 0;
    const std::string whole =
        safe_text(std::string_view(pending).substr(0, pending.size() - unfinished));
    pending.erase(0, pending.size() - unfinished);
    if (whole.empty()) continue;
    const std::string_view color = has_color ? color_of(is_trained, i % 2 == 0) : "";
    shown += color;
    shown += whole;
    if (!color.empty()) shown += kReset;
  }
  return shown + (is_open ? "]]" : "");
}

}  // namespace slime::report
