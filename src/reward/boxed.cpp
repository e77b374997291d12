#include "reward/boxed.h"

namespace slime::reward {
namespace {

/// From `begin` to the first closing brace after which as many are closed as were opened.
std::optional<std::string_view> balanced(std::string_view text, std::size_t begin) {
  long open = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{') ++open;
    if (text[i] == '}' && --open == 0) return text.substr(begin, i + 1 - begin);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> last_boxed_expression(std::string_view text) {
  std::size_t begin = text.rfind("\\boxed");
  if (begin == std::string_view::npos) begin = text.rfind("\\fbox");
  if (begin == std::string_view::npos) return std::nullopt;
  return balanced(text, begin);
}

std::optional<std::string_view> boxed_content(std::string_view text) {
  constexpr std::string_view kOpening = "\\boxed{";
  const std::optional<std::string_view> boxed = last_boxed_expression(text);
  if (!boxed || !boxed->starts_with(kOpening)) return std::nullopt;
  return boxed->substr(kOpening.size(), boxed->size() - kOpening.size() - 1);
}

std::optional<std::string_view> extract_answer(std::string_view response) {
  if (response.find("\\boxed") == std::string_view::npos) return std::nullopt;
  return boxed_content(response);
}

std::optional<std::string_view> last_boxed_with_braces(std::string_view text) {
  const std::size_t begin = text.rfind("\\boxed{");
  if (begin == std::string_view::npos) return std::nullopt;
  return balanced(text, begin);
}

}  // namespace slime::reward
