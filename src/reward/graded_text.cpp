#include "reward/graded_text.h"

#include <algorithm>
#include <array>

#include "reward/python_text.h"

namespace slime::reward {
namespace {

/// Names between "<|" and "|>" are short: nothing longer is looked for.
constexpr std::size_t kLongestName = 64;

constexpr auto kPlainMarks = std::to_array<std::string_view>(
    {"</s>", "<eos>", "<EOS>", "[EOS]", "<pad>", "[PAD]", "<end_of_turn>", "<turn|>",
     "<end_of_utterance>", "<eos_token>", "<end_of_sentence>", "[e~["});

/// The opening and closing of names such as <|im_end|> and DeepSeek's full-width ones.
struct Brackets {
  std::string_view open;
  std::string_view close;
};
constexpr auto kBrackets =
    std::to_array<Brackets>({{"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}});

/// Bytes of the mark <|name|> that ends `text`; 0: none does.
std::size_t named_mark(std::string_view text) {
  for (const auto& [open, close] : kBrackets) {
    if (!text.ends_with(close)) continue;
    const std::string_view before = text.substr(0, text.size() - close.size());
    const std::size_t begin = before.rfind(open);
    if (begin == std::string_view::npos || before.size() - begin > kLongestName) continue;
    const std::string_view name = before.substr(begin + open.size());
    const bool is_name = !name.empty() && std::ranges::none_of(name, [](char c) {
      return is_blank(c) || c == '<' || c == '>' || c == '|';
    });
    if (is_name) return text.size() - begin;
  }
  return 0;
}

/// Bytes of the mark that ends `text`; 0: none does.
std::size_t mark_at_end(std::string_view text, std::span<const std::string> marks) {
  std::size_t longest = named_mark(text);
  for (const std::string_view mark : kPlainMarks) {
    if (text.ends_with(mark)) longest = std::max(longest, mark.size());
  }
  for (const std::string& mark : marks) {
    if (!mark.empty() && text.ends_with(mark)) longest = std::max(longest, mark.size());
  }
  return longest;
}

}  // namespace

std::string_view graded_text(std::string_view response, std::span<const std::string> marks) {
  while (true) {
    std::size_t end = response.size();
    while (end > 0 && is_blank(response[end - 1])) --end;
    const std::size_t mark = mark_at_end(response.substr(0, end), marks);
    if (mark == 0) return response;
    response = response.substr(0, end - mark);
  }
}

}  // namespace slime::reward
