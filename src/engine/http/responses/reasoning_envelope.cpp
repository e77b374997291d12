#include "engine/http/responses/reasoning_envelope.h"

#include "core/base64.h"
#include "text/unicode/unicode.h"

namespace slime::engine {
namespace {

constexpr std::string_view kPrefix = "slime.reasoning.1.";

}  // namespace

std::string pack_reasoning(std::string_view text) { return std::string(kPrefix) + to_base64(text); }

bool is_packed_reasoning(std::string_view content) { return content.starts_with(kPrefix); }

std::optional<std::string> unpack_reasoning(std::string_view content) {
  if (!is_packed_reasoning(content)) return std::nullopt;
  std::optional<std::string> text = from_base64(content.substr(kPrefix.size()));
  if (!text || !text::is_valid_utf8(*text)) return std::nullopt;
  return text;
}

}  // namespace slime::engine
